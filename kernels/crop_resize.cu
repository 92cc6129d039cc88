// Pictures that the GPU's JPEG engines decoded, into rows of a batch: cropped, resampled and mirrored, with the very
// numbers that the CPU's resampler makes of the same pixels. It decodes nothing, and knows no padding and no nearest
// filter; those pictures stay on the CPU.
//
// A launch takes `count` tasks, one a picture, in three steps over the same tasks:
//   crop_resize_weights   the filters' weights of both axes, in double precision, rounded to 16 bits
//   crop_resize_across_C  rows of the window, resampled across, rounded to bytes
//   crop_resize_down_C    columns of that, resampled down, rounded to bytes and mirrored into the row
// C is the channels of a pixel, 3 or 1. The order, the rounding in between and every operation on a double are those of
// the CPU's resampler, which is why this file is compiled without fused multiply-add.
//
// poison and probe prove that a picture was written: poison puts a pattern on a grid of its pixels before it is decoded,
// probe counts where it still stands afterwards.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

enum Filter : u32 { COPY = 0, BILINEAR = 1, BICUBIC = 2, NARROW_BILINEAR = 3 };

// One axis: `outputs` made from the inputs between `start` and `end`, of `inputs` that there are. `weights` points to
// scratch: precision, 3 words unused, first input and number of inputs of each output, then `taps` times `outputs`
// weights, the first of each output, the second of each and so on.
struct Axis {
    double start;
    double end;
    u64 weights;
    u32 inputs;
    u32 outputs;
    u32 taps;
    u32 filter;
};

// One picture. `window` is its first pixel that is read, rows lie `pitch` bytes apart. `middle` is scratch for
// [y.inputs, x.outputs, C] bytes, `row` takes [y.outputs, x.outputs, C].
struct Task {
    u64 window;
    u64 middle;
    u64 row;
    Axis x;
    Axis y;
    u32 pitch;
    u32 mirrors;
};

constexpr u32 MIRROR_X = 1;
constexpr u32 MIRROR_Y = 2;
constexpr u32 WEIGHT_THREADS = 256;

__device__ __forceinline__ u32* starts_of(const Axis& axis) { return reinterpret_cast<u32*>(axis.weights) + 4; }

__device__ __forceinline__ u32* counts_of(const Axis& axis) { return starts_of(axis) + axis.outputs; }

__device__ __forceinline__ short* weights_of(const Axis& axis) {
    return reinterpret_cast<short*>(counts_of(axis) + axis.outputs);
}

__device__ __forceinline__ double height_at(u32 filter, double x) {
    x = fabs(x);
    if (filter == BICUBIC) {
        constexpr double A = -0.5;
        if (x < 1.0) return ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
        return x < 2.0 ? (((x - 5.0) * x + 8.0) * x - 4.0) * A : 0.0;
    }
    return x < 1.0 ? 1.0 - x : 0.0;
}

// The inputs under one output, and how far the filter's centre is from each.
struct Reach {
    u32 first;
    u32 end;
    double centre;
    double per_input;

    __device__ Reach(const Axis& axis, u32 output) {
        const double scale = (axis.end - axis.start) / axis.outputs;
        const double stretch = axis.filter == NARROW_BILINEAR || scale < 1.0 ? 1.0 : scale;
        const double radius = (axis.filter == BICUBIC ? 2.0 : 1.0) * stretch;
        const double middle = axis.start + (output + 0.5) * scale;
        const double low = floor(middle - radius);
        const double high = ceil(middle + radius);
        first = low > 0.0 ? static_cast<u32>(low) : 0;
        end = high < axis.inputs ? static_cast<u32>(high) : axis.inputs;
        centre = middle - 0.5;
        per_input = 1.0 / stretch;
    }

    __device__ double weight(const Axis& axis, u32 input) const {
        return height_at(axis.filter, (input - centre) * per_input);
    }
};

// How many bits a weight may have behind the point so that the largest fits in 16.
__device__ __forceinline__ u32 precision_for(double largest) {
    u32 precision = 0;
    for (; precision < 21; ++precision) {
        if (round(largest * (1u << (precision + 1))) >= 32768.0) break;
    }
    return precision;
}

extern "C" __global__ void __launch_bounds__(WEIGHT_THREADS) crop_resize_weights(const Task* tasks, u32 count) {
    __shared__ double largest[WEIGHT_THREADS];
    const u32 number = blockIdx.x / 2;
    if (number >= count) return;
    const Axis& axis = blockIdx.x % 2 ? tasks[number].y : tasks[number].x;
    u32* const starts = starts_of(axis);
    u32* const counts = counts_of(axis);
    short* const weights = weights_of(axis);
    u32* const precision_out = reinterpret_cast<u32*>(axis.weights);
    if (axis.filter == COPY) {
        for (u32 output = threadIdx.x; output < axis.outputs; output += WEIGHT_THREADS) {
            starts[output] = static_cast<u32>(axis.start) + output;
            counts[output] = 1;
            weights[output] = 1 << 14;
        }
        if (threadIdx.x == 0) *precision_out = 14;
        return;
    }
    double own_largest = 0.0;
    for (u32 output = threadIdx.x; output < axis.outputs; output += WEIGHT_THREADS) {
        const Reach reach(axis, output);
        double sum = 0.0, top = 0.0;
        for (u32 input = reach.first; input < reach.end; ++input) {
            const double weight = reach.weight(axis, input);
            sum += weight;
            top = weight > top ? weight : top;
        }
        // Division keeps the order: the largest quotient is that of the largest weight.
        top = sum != 0.0 ? top / sum : top;
        own_largest = top > own_largest ? top : own_largest;
    }
    largest[threadIdx.x] = own_largest;
    for (u32 half = WEIGHT_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half && largest[threadIdx.x + half] > largest[threadIdx.x]) {
            largest[threadIdx.x] = largest[threadIdx.x + half];
        }
    }
    __syncthreads();
    const u32 precision = precision_for(largest[0]);
    const double one = 1u << precision;
    if (threadIdx.x == 0) *precision_out = precision;
    for (u32 output = threadIdx.x; output < axis.outputs; output += WEIGHT_THREADS) {
        const Reach reach(axis, output);
        u32 first = reach.first, end = reach.end;
        double sum = 0.0;
        for (u32 input = first; input < end; ++input) sum += reach.weight(axis, input);
        while (first < end && reach.weight(axis, first) == 0.0) ++first;
        while (first < end && reach.weight(axis, end - 1) == 0.0) --end;
        const u32 used = min(end - first, axis.taps);
        starts[output] = first;
        counts[output] = used;
        for (u32 tap = 0; tap < used; ++tap) {
            const double weight = reach.weight(axis, first + tap);
            const double share = sum != 0.0 ? weight / sum : weight;
            weights[tap * axis.outputs + output] = static_cast<short>(round(share * one));
        }
    }
}

// A sum of weighted bytes as a byte.
__device__ __forceinline__ u8 clip(int sum, u32 precision) { return static_cast<u8>(min(max(sum >> precision, 0), 255)); }

template <u32 C>
__device__ __forceinline__ void across(const Task* tasks) {
    const Task& task = tasks[blockIdx.z];
    const Axis& axis = task.x;
    const u32 output = blockIdx.x * blockDim.x + threadIdx.x;
    if (output >= axis.outputs) return;
    const u32 precision = *reinterpret_cast<const u32*>(axis.weights);
    const u32 used = counts_of(axis)[output];
    const short* const weights = weights_of(axis) + output;
    const u8* const column = reinterpret_cast<const u8*>(task.window) + static_cast<u64>(starts_of(axis)[output]) * C;
    u8* const out = reinterpret_cast<u8*>(task.middle) + static_cast<u64>(output) * C;
    for (u32 row = blockIdx.y * blockDim.y + threadIdx.y; row < task.y.inputs; row += gridDim.y * blockDim.y) {
        const u8* from = column + static_cast<u64>(row) * task.pitch;
        int sums[C];
        for (u32 channel = 0; channel < C; ++channel) sums[channel] = 1 << (precision - 1);
        for (u32 tap = 0; tap < used; ++tap, from += C) {
            const int weight = weights[tap * axis.outputs];
            for (u32 channel = 0; channel < C; ++channel) sums[channel] += from[channel] * weight;
        }
        u8* const to = out + static_cast<u64>(row) * axis.outputs * C;
        for (u32 channel = 0; channel < C; ++channel) to[channel] = clip(sums[channel], precision);
    }
}

template <u32 C>
__device__ __forceinline__ void down(const Task* tasks) {
    const Task& task = tasks[blockIdx.z];
    const Axis& axis = task.y;
    const u32 width = task.x.outputs;
    const u32 row_bytes = width * C;
    const u32 byte = blockIdx.x * blockDim.x + threadIdx.x;
    if (byte >= row_bytes) return;
    const u32 precision = *reinterpret_cast<const u32*>(axis.weights);
    const u32 pixel = byte / C;
    const u32 to_byte = task.mirrors & MIRROR_X ? (width - 1 - pixel) * C + byte % C : byte;
    const u8* const column = reinterpret_cast<const u8*>(task.middle) + byte;
    u8* const out = reinterpret_cast<u8*>(task.row) + to_byte;
    for (u32 output = blockIdx.y * blockDim.y + threadIdx.y; output < axis.outputs; output += gridDim.y * blockDim.y) {
        const u32 used = counts_of(axis)[output];
        const short* const weights = weights_of(axis) + output;
        const u8* from = column + static_cast<u64>(starts_of(axis)[output]) * row_bytes;
        int sum = 1 << (precision - 1);
        for (u32 tap = 0; tap < used; ++tap, from += row_bytes) sum += *from * weights[tap * axis.outputs];
        const u32 to_row = task.mirrors & MIRROR_Y ? axis.outputs - 1 - output : output;
        out[static_cast<u64>(to_row) * row_bytes] = clip(sum, precision);
    }
}

extern "C" __global__ void __launch_bounds__(256) crop_resize_across_1(const Task* tasks) { across<1>(tasks); }
extern "C" __global__ void __launch_bounds__(256) crop_resize_across_3(const Task* tasks) { across<3>(tasks); }
extern "C" __global__ void __launch_bounds__(256) crop_resize_down_1(const Task* tasks) { down<1>(tasks); }
extern "C" __global__ void __launch_bounds__(256) crop_resize_down_3(const Task* tasks) { down<3>(tasks); }

// A decoded picture, three interleaved bytes a pixel. `salt` makes its pattern unlike that of other pictures.
struct Picture {
    u64 pixels;
    u32 pitch;
    u32 width;
    u32 height;
    u32 salt;
};

constexpr u32 GRID = 8;

// Probed columns or rows of a side: every eighth and the last.
__device__ __forceinline__ u32 probes_along(u32 side) { return (side + GRID - 2) / GRID + 1; }

__device__ __forceinline__ u32 pattern_at(const Picture& picture, u32 x, u32 y) {
    u32 mixed = picture.salt ^ (x * 0x9E3779B1u) ^ (y * 0x85EBCA77u + 0x27D4EB2Fu);
    mixed = (mixed ^ (mixed >> 15)) * 0x2C1B3C6Du;
    mixed = (mixed ^ (mixed >> 12)) * 0x297A2D39u;
    return (mixed ^ (mixed >> 15)) & 0xFFFFFFu;
}

// Calls `visit` with each probed pixel that is this thread's, and its pattern. One block has one picture.
template <typename Visit>
__device__ __forceinline__ void visit_probes(const Picture& picture, Visit visit) {
    if (picture.width == 0 || picture.height == 0) return;
    const u32 columns = probes_along(picture.width);
    const u32 probes = columns * probes_along(picture.height);
    for (u32 probe = threadIdx.x; probe < probes; probe += blockDim.x) {
        const u32 x = min(probe % columns * GRID, picture.width - 1);
        const u32 y = min(probe / columns * GRID, picture.height - 1);
        visit(reinterpret_cast<u8*>(picture.pixels) + static_cast<u64>(y) * picture.pitch + static_cast<u64>(x) * 3,
              pattern_at(picture, x, y));
    }
}

extern "C" __global__ void __launch_bounds__(256) poison(const Picture* pictures) {
    visit_probes(pictures[blockIdx.x], [](u8* pixel, u32 pattern) {
        pixel[0] = static_cast<u8>(pattern);
        pixel[1] = static_cast<u8>(pattern >> 8);
        pixel[2] = static_cast<u8>(pattern >> 16);
    });
}

// Writes to `unwritten[i]` how many probed pixels of picture i still hold the pattern.
extern "C" __global__ void __launch_bounds__(256) probe(const Picture* pictures, u32* unwritten) {
    __shared__ u32 total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    u32 own = 0;
    visit_probes(pictures[blockIdx.x], [&own](u8* pixel, u32 pattern) {
        const u32 read = pixel[0] | static_cast<u32>(pixel[1]) << 8 | static_cast<u32>(pixel[2]) << 16;
        own += read == pattern;
    });
    if (own > 0) atomicAdd(&total, own);
    __syncthreads();
    if (threadIdx.x == 0) unwritten[blockIdx.x] = total;
}
