// Bytes of decoded images into a batch of numbers: looked up, laid out and written at the speed of memory.
// It computes no value: the host makes a table of what each byte of each channel becomes, so that host and device
// cannot differ in a bit.
//
// A launch takes `rows` images. `sources[r]` points to image r, `[plane, 3]` bytes ("pixels") or `[channels, plane]`
// ("planes"), plane = height x width; a null pointer leaves row r of the output alone. Numbers are BYTES wide: 1 (the
// bytes themselves), 2 (float16 and bfloat16 alike) or 4 (float32). `table` holds `[channels][256]` words, a number in
// the low end of each; it is not read where BYTES is 1.
//
// How it is made fast:
// - Every store of a warp is 512 contiguous bytes, 16 a lane: halves of sectors would cost a whole one each.
// - A lookup goes to shared memory, where the table lies 16 times, entry by entry, so that two lanes at most ask the
//   same bank, whatever the image shows.
// - Blocks stay and walk over tiles, so that a table is laid out once a block and not once a tile.
// Rows that are not aligned for that go one number at a time, by the same blocks.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr u32 THREADS = 512;

// The table in shared memory, 1 << BITS copies of it: entry v of channel c lies at c * CHANNEL + (v << BITS) + copy.
template <u32 BITS>
struct Copies {
    static constexpr u32 COUNT = 1 << BITS;
    static constexpr u32 CHANNEL = 256 << BITS;
};

// 48 KiB for three channels: the most that every GPU grants without being asked.
constexpr u32 COPY_BITS = 4;
// Where half of that goes to something else.
constexpr u32 FEWER_COPY_BITS = 3;

// Numbers in 16 bytes of output, which is also how many bytes of input make them.
template <int BYTES>
constexpr u32 LANE = 16 / BYTES;

// Pieces of work a thread has in flight at once: 16 to 48 bytes of input.
template <int BYTES>
constexpr u32 PIECES = BYTES == 4 ? 2 : 1;

// The same for runs that keep their order, where a piece is small.
template <int BYTES>
constexpr u32 RUN_PIECES = BYTES == 4 ? 4 : BYTES == 2 ? 3 : 1;

template <int BYTES>
constexpr u32 RUN_TILE = THREADS * RUN_PIECES<BYTES> * LANE<BYTES>;

// Numbers or pixels, as the kernel counts, that a block does between two looks at which row it is in.
template <int BYTES>
constexpr u32 TILE = THREADS * PIECES<BYTES> * LANE<BYTES>;

// Reads LANE<BYTES> bytes, aligned to as many.
template <int BYTES>
__device__ __forceinline__ void load(const u8* from, u32* words);

template <>
__device__ __forceinline__ void load<4>(const u8* from, u32* words) {
    words[0] = __ldg(reinterpret_cast<const u32*>(from));
}

template <>
__device__ __forceinline__ void load<2>(const u8* from, u32* words) {
    const uint2 read = __ldg(reinterpret_cast<const uint2*>(from));
    words[0] = read.x;
    words[1] = read.y;
}

template <>
__device__ __forceinline__ void load<1>(const u8* from, u32* words) {
    const uint4 read = __ldg(reinterpret_cast<const uint4*>(from));
    words[0] = read.x;
    words[1] = read.y;
    words[2] = read.z;
    words[3] = read.w;
}

template <int BYTES, u32 BITS>
__device__ __forceinline__ void lay_out(const u32* table, u32 channels, u32* shared_table) {
    if constexpr (BYTES > 1) {
        constexpr u32 PARTS = Copies<BITS>::COUNT / 4;
        for (u32 entry = threadIdx.x; entry < channels * 256; entry += THREADS) {
            const u32 word = __ldg(table + entry);
            uint4* const copies = reinterpret_cast<uint4*>(shared_table + (entry << BITS));
            // Turned so that eight neighbours write to different banks.
            for (u32 i = 0; i < PARTS; ++i) {
                copies[(i + threadIdx.x / (8 / PARTS)) % PARTS] = make_uint4(word, word, word, word);
            }
        }
        __syncthreads();
    }
}

// Where in the copies byte number `byte` of `words` is looked up; `place` holds the channel's and the copy's bits.
template <u32 BITS>
__device__ __forceinline__ u32 entry_of(const u32* words, u32 byte, u32 place) {
    const u32 shift = byte % 4 * 8;
    const u32 word = words[byte / 4];
    const u32 moved = shift >= BITS ? word >> (shift - BITS) : word << (BITS - shift);
    return (moved & (255u << BITS)) | place;
}

// Writes what one byte becomes, for rows that go one number at a time.
template <int BYTES, u32 BITS>
__device__ __forceinline__ void write_one(u8* out, u64 at, u32 byte, const u32* shared_table, u32 place) {
    if constexpr (BYTES == 1) {
        out[at] = static_cast<u8>(byte);
    } else {
        const u32 word = shared_table[(byte << BITS) | place];
        if constexpr (BYTES == 2) {
            reinterpret_cast<u16*>(out)[at] = static_cast<u16>(word);
        } else {
            reinterpret_cast<u32*>(out)[at] = word;
        }
    }
}

__device__ __forceinline__ void write_lane(u8* to, const u32* words) {
    __stcs(reinterpret_cast<uint4*>(to), make_uint4(words[0], words[1], words[2], words[3]));
}

__device__ __forceinline__ bool is_aligned(const void* pointer, u32 bytes) {
    return reinterpret_cast<u64>(pointer) % bytes == 0;
}

// Puts the low halves of two words into one.
__device__ __forceinline__ u32 pair(u32 low, u32 high) { return __byte_perm(low, high, 0x5410); }

// The bytes of one channel of four pixels, out of their twelve.
__device__ __forceinline__ u32 gather(const u32* words, u32 channel) {
    const u32 front = __byte_perm(words[0], words[1], channel == 0 ? 0x0630 : channel == 1 ? 0x0741 : 0x0052);
    return __byte_perm(front, words[2], channel == 0 ? 0x5210 : channel == 1 ? 0x6210 : 0x7410);
}

// Runs of numbers that keep their order: whole images of pixels (PIXELS: the channel changes from number to number) or
// planes of images (it is the same all along a run). `len` numbers a run, `runs_per_row` of them an image.
template <int BYTES, bool PIXELS>
__device__ __forceinline__ void keep_order(const u64* sources, u8* out, const u32* table, u32 rows, u32 len, u32 runs_per_row) {
    constexpr u32 BITS = COPY_BITS;
    constexpr u32 CHANNEL = Copies<BITS>::CHANNEL;
    extern __shared__ uint4 shared_words[];
    u32* const shared_table = reinterpret_cast<u32*>(shared_words);
    lay_out<BYTES, BITS>(table, PIXELS ? 3 : runs_per_row, shared_table);
    constexpr u32 N = LANE<BYTES>;
    const u32 copy = threadIdx.x % Copies<BITS>::COUNT;
    const u32 tiles_per_run = (len + RUN_TILE<BYTES> - 1) / RUN_TILE<BYTES>;
    const u32 tiles = rows * runs_per_row * tiles_per_run;
    for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const u32 run = tile / tiles_per_run;
        const u32 first = (tile - run * tiles_per_run) * RUN_TILE<BYTES>;
        const u32 row = run / runs_per_row;
        const u32 channel = run - row * runs_per_row;
        const u8* const source = reinterpret_cast<const u8*>(__ldg(sources + row));
        if (source == nullptr) continue;
        const u8* const from = source + static_cast<u64>(channel) * len;
        u8* const to = out + static_cast<u64>(run) * len * BYTES;
        const u32 end = min(len - first, RUN_TILE<BYTES>) + first;
        u32 whole_end = first;
        if (is_aligned(from, N) && is_aligned(to, 16)) {
            whole_end = end - end % N;
            u32 words[RUN_PIECES<BYTES>][N / 4];
#pragma unroll
            for (u32 i = 0; i < RUN_PIECES<BYTES>; ++i) {
                const u32 at = first + (i * THREADS + threadIdx.x) * N;
                if (at < whole_end) load<BYTES>(from + at, words[i]);
            }
#pragma unroll
            for (u32 i = 0; i < RUN_PIECES<BYTES>; ++i) {
                const u32 at = first + (i * THREADS + threadIdx.x) * N;
                if (at >= whole_end) continue;
                if constexpr (BYTES == 1) {
                    write_lane(to + at, words[i]);
                    continue;
                }
                u32 place[3];
                const u32 phase = PIXELS ? at % 3 : 0;
#pragma unroll
                for (u32 k = 0; k < 3; ++k) {
                    const u32 turned = phase + k >= 3 ? phase + k - 3 : phase + k;
                    place[k] = (PIXELS ? turned : channel) * CHANNEL | copy;
                }
                u32 looked_up[N];
#pragma unroll
                for (u32 k = 0; k < N; ++k) looked_up[k] = shared_table[entry_of<BITS>(words[i], k, place[PIXELS ? k % 3 : 0])];
                u32 lane[4];
#pragma unroll
                for (u32 k = 0; k < 4; ++k) lane[k] = BYTES == 2 ? pair(looked_up[2 * k], looked_up[2 * k + 1]) : looked_up[k];
                write_lane(to + static_cast<u64>(at) * BYTES, lane);
            }
        }
        for (u32 at = whole_end + threadIdx.x; at < end; at += THREADS) {
            const u32 of = PIXELS ? at % 3 : channel;
            write_one<BYTES, BITS>(to, at, __ldg(from + at), shared_table, of * CHANNEL | copy);
        }
    }
}

// Pixels of three bytes into three planes.
template <int BYTES>
__device__ __forceinline__ void take_apart(const u64* sources, u8* out, const u32* table, u32 rows, u32 plane) {
    constexpr u32 BITS = COPY_BITS;
    constexpr u32 CHANNEL = Copies<BITS>::CHANNEL;
    extern __shared__ uint4 shared_words[];
    u32* const shared_table = reinterpret_cast<u32*>(shared_words);
    lay_out<BYTES, BITS>(table, 3, shared_table);
    constexpr u32 N = LANE<BYTES>;
    const u32 copy = threadIdx.x % Copies<BITS>::COUNT;
    const u32 tiles_per_row = (plane + TILE<BYTES> - 1) / TILE<BYTES>;
    const u32 tiles = rows * tiles_per_row;
    for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const u32 row = tile / tiles_per_row;
        const u32 first = (tile - row * tiles_per_row) * TILE<BYTES>;
        const u8* const from = reinterpret_cast<const u8*>(__ldg(sources + row));
        if (from == nullptr) continue;
        u8* const to = out + static_cast<u64>(row) * 3 * plane * BYTES;
        const u32 end = min(plane - first, TILE<BYTES>) + first;
        if (plane % N == 0 && is_aligned(from, N) && is_aligned(to, 16)) {
            u32 words[PIECES<BYTES>][3 * N / 4];
#pragma unroll
            for (u32 i = 0; i < PIECES<BYTES>; ++i) {
                const u32 at = first + (i * THREADS + threadIdx.x) * N;
                if (at >= end) continue;
#pragma unroll
                for (u32 k = 0; k < 3; ++k) load<BYTES>(from + static_cast<u64>(at) * 3 + k * N, words[i] + k * (N / 4));
            }
#pragma unroll
            for (u32 i = 0; i < PIECES<BYTES>; ++i) {
                const u32 at = first + (i * THREADS + threadIdx.x) * N;
                if (at >= end) continue;
#pragma unroll
                for (u32 channel = 0; channel < 3; ++channel) {
                    u32 lane[4];
                    if constexpr (BYTES == 1) {
#pragma unroll
                        for (u32 k = 0; k < 4; ++k) lane[k] = gather(words[i] + (BYTES == 1 ? 3 * k : 0), channel);
                    } else {
                        u32 looked_up[N];
#pragma unroll
                        for (u32 k = 0; k < N; ++k) {
                            looked_up[k] = shared_table[entry_of<BITS>(words[i], 3 * k + channel, channel * CHANNEL | copy)];
                        }
#pragma unroll
                        for (u32 k = 0; k < 4; ++k) {
                            lane[k] = BYTES == 2 ? pair(looked_up[2 * k % N], looked_up[(2 * k + 1) % N]) : looked_up[k % N];
                        }
                    }
                    write_lane(to + (static_cast<u64>(channel) * plane + at) * BYTES, lane);
                }
            }
            continue;
        }
        for (u32 at = first + threadIdx.x; at < end; at += THREADS) {
            for (u32 channel = 0; channel < 3; ++channel) {
                const u32 byte = __ldg(from + static_cast<u64>(at) * 3 + channel);
                write_one<BYTES, BITS>(to, static_cast<u64>(channel) * plane + at, byte, shared_table, channel * CHANNEL | copy);
            }
        }
    }
}

// Three planes into pixels of three numbers. A thread makes 48 contiguous bytes; the lanes of a warp trade them in
// shared memory, 16 bytes at a time, so that each store is contiguous over the warp.
template <int BYTES>
__device__ __forceinline__ void put_together(const u64* sources, u8* out, const u32* table, u32 rows, u32 plane) {
    constexpr u32 BITS = FEWER_COPY_BITS;
    constexpr u32 CHANNEL = Copies<BITS>::CHANNEL;
    extern __shared__ uint4 shared_words[];
    uint4* const trade = shared_words + threadIdx.x / 32 * 96;
    u32* const shared_table = reinterpret_cast<u32*>(shared_words + THREADS * 3);
    lay_out<BYTES, BITS>(table, 3, shared_table);
    constexpr u32 N = LANE<BYTES>;
    const u32 copy = threadIdx.x % Copies<BITS>::COUNT;
    const u32 warp_lane = threadIdx.x % 32;
    const u32 tiles_per_row = (plane + TILE<BYTES> - 1) / TILE<BYTES>;
    const u32 tiles = rows * tiles_per_row;
    for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const u32 row = tile / tiles_per_row;
        const u32 first = (tile - row * tiles_per_row) * TILE<BYTES>;
        const u8* const from = reinterpret_cast<const u8*>(__ldg(sources + row));
        if (from == nullptr) continue;
        u8* const to = out + static_cast<u64>(row) * 3 * plane * BYTES;
        const u32 end = min(plane - first, TILE<BYTES>) + first;
        if (plane % N == 0 && is_aligned(from, N) && is_aligned(to, 16)) {
            u32 words[PIECES<BYTES>][3][N / 4];
#pragma unroll
            for (u32 i = 0; i < PIECES<BYTES>; ++i) {
                const u32 at = first + (i * THREADS + threadIdx.x) * N;
                if (at >= end) continue;
#pragma unroll
                for (u32 channel = 0; channel < 3; ++channel) load<BYTES>(from + static_cast<u64>(channel) * plane + at, words[i][channel]);
            }
#pragma unroll
            for (u32 i = 0; i < PIECES<BYTES>; ++i) {
                const u32 at = first + (i * THREADS + threadIdx.x) * N;
                const u32 warp_at = at - warp_lane * N;
                if (warp_at >= end) continue;
                // Numbers of the 48 bytes, in order: three for each pixel.
                u32 made[12];
                if constexpr (BYTES == 1) {
#pragma unroll
                    for (u32 k = 0; k < 4; ++k) {
                        const u32 r = words[i][0][k % (N / 4)], g = words[i][1][k % (N / 4)], b = words[i][2][k % (N / 4)];
                        const u32 rg = __byte_perm(r, g, 0x5140), gr = __byte_perm(r, g, 0x7362);
                        made[3 * k] = __byte_perm(rg, __byte_perm(b, r, 0x0050), 0x5410);
                        made[3 * k + 1] = __byte_perm(__byte_perm(g, b, 0x0051), gr, 0x5410);
                        made[3 * k + 2] = __byte_perm(__byte_perm(b, r, 0x0072), __byte_perm(g, b, 0x0073), 0x5410);
                    }
                } else {
                    u32 looked_up[3 * N];
#pragma unroll
                    for (u32 k = 0; k < 3 * N; ++k) {
                        looked_up[k] = shared_table[entry_of<BITS>(words[i][k % 3], k / 3, k % 3 * CHANNEL | copy)];
                    }
#pragma unroll
                    for (u32 k = 0; k < 12; ++k) {
                        made[k] = BYTES == 2 ? pair(looked_up[2 * k % (3 * N)], looked_up[(2 * k + 1) % (3 * N)]) : looked_up[k];
                    }
                }
                __syncwarp();
#pragma unroll
                for (u32 k = 0; k < 3; ++k) {
                    trade[3 * warp_lane + k] = make_uint4(made[4 * k], made[4 * k + 1], made[4 * k + 2], made[4 * k + 3]);
                }
                __syncwarp();
                const u32 parts = min((end - warp_at) / N, 32u) * 3;
                u8* const warp_to = to + static_cast<u64>(warp_at) * 3 * BYTES;
#pragma unroll
                for (u32 k = 0; k < 3; ++k) {
                    const u32 part = 32 * k + warp_lane;
                    if (part < parts) __stcs(reinterpret_cast<uint4*>(warp_to) + part, trade[part]);
                }
            }
            continue;
        }
        for (u32 at = first + threadIdx.x; at < end; at += THREADS) {
            for (u32 channel = 0; channel < 3; ++channel) {
                const u32 byte = __ldg(from + static_cast<u64>(channel) * plane + at);
                write_one<BYTES, BITS>(to, static_cast<u64>(at) * 3 + channel, byte, shared_table, channel * CHANNEL | copy);
            }
        }
    }
}

// `keep_planes` also serves grey images (1 channel), and images of bytes that stay as they are, as one long plane.
#define NORMALIZE(BITS, BYTES)                                                                                        \
    extern "C" __global__ void __launch_bounds__(THREADS, 2) normalize_keep_planes_##BITS(                            \
        const u64* sources, u8* out, const u32* table, u32 rows, u32 plane, u32 channels) {                           \
        keep_order<BYTES, false>(sources, out, table, rows, plane, channels);                                         \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS, 2) normalize_planes_from_pixels_##BITS(                     \
        const u64* sources, u8* out, const u32* table, u32 rows, u32 plane, u32 channels) {                           \
        take_apart<BYTES>(sources, out, table, rows, plane);                                                          \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(THREADS, 2) normalize_pixels_from_planes_##BITS(                     \
        const u64* sources, u8* out, const u32* table, u32 rows, u32 plane, u32 channels) {                           \
        put_together<BYTES>(sources, out, table, rows, plane);                                                        \
    }

NORMALIZE(8, 1)
NORMALIZE(16, 2)
NORMALIZE(32, 4)

extern "C" __global__ void __launch_bounds__(THREADS, 2) normalize_keep_pixels_16(
    const u64* sources, u8* out, const u32* table, u32 rows, u32 plane, u32 channels) {
    keep_order<2, true>(sources, out, table, rows, plane * 3, 1);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) normalize_keep_pixels_32(
    const u64* sources, u8* out, const u32* table, u32 rows, u32 plane, u32 channels) {
    keep_order<4, true>(sources, out, table, rows, plane * 3, 1);
}
