//! What a generated photo shows: a backdrop, shaded and textured objects that hide each other, and a camera's noise.
//!
//! Pictures of objects in all sizes, each hiding what is behind it, have the edges and the spectrum of photos; the
//! scenes do not try to be more than that.

use super::noise::{Plane, Stream, hash};

/// The most objects of one clutter.
const CLUTTER_MAX: u32 = 1200;
/// How far a blob's outline reaches beyond its radius.
const REACH: f32 = 1.25;

/// Draws the scene of `stream` as `[height, width, 3]`, `u8`, RGB.
pub(super) fn render(width: usize, height: usize, stream: &mut Stream) -> Vec<u8> {
    let mut scene = Scene::new(width, height, stream);
    scene.draw_backdrop(stream);
    if stream.chance(0.5) {
        scene.draw_clutter(stream);
    }
    scene.draw_objects(stream);
    if stream.chance(0.25) {
        scene.draw_clutter(stream);
    }
    scene.develop(stream)
}

struct Scene {
    luma: Plane,
    /// Blue and red differences, around 0.
    blue: Plane,
    red: Plane,
    textures: Textures,
    /// Towards the light, in a circle of radius 1.
    light: (f32, f32),
    /// How rich in detail the photo is; 1 on average.
    detail: f32,
    palette: [Color; 4],
}

/// Three textures at the size of the photo, which the objects mix.
struct Textures {
    fine: Plane,
    coarse: Plane,
    streaks: Plane,
}

#[derive(Clone, Copy)]
struct Color {
    luma: f32,
    blue: f32,
    red: f32,
}

/// Contrast of each texture on an object's surface, in steps of luma.
#[derive(Clone, Copy)]
struct Surface {
    fine: f32,
    coarse: f32,
    streaks: f32,
    /// Share of the fine texture that colours the surface.
    tint: f32,
}

enum Outline {
    Ellipse,
    Box,
    Blob,
}

struct Object {
    center: (f32, f32),
    radius: (f32, f32),
    /// Cosine and sine of its rotation.
    turn: (f32, f32),
    outline: Outline,
    color: Color,
    surface: Surface,
    /// How much the side in the light differs from the side in the shade.
    relief: f32,
    /// Width of the edge in pixels.
    blur: f32,
}

impl Scene {
    fn new(width: usize, height: usize, stream: &mut Stream) -> Self {
        // The product of three draws spreads as the detail of photos does: many middling ones, a few very rich ones.
        let detail = 2.15 * stream.between(0.45, 1.55) * stream.between(0.45, 1.55) * stream.between(0.5, 1.5);
        // The colours of one photo lean one way, mostly along the line from sky to earth.
        let cast = (stream.between(-14.0, 10.0), stream.between(-8.0, 12.0));
        let palette = std::array::from_fn(|_| {
            let warmth = stream.between(-1.0, 1.0);
            let vivid = stream.between(2.0, 26.0);
            Color {
                luma: stream.between(35.0, 205.0),
                blue: cast.0 - warmth * vivid + stream.between(-9.0, 6.0),
                red: cast.1 + warmth * vivid * 0.8 + stream.between(-8.0, 8.0),
            }
        });
        Self {
            luma: Plane::new(width, height, 0.0),
            blue: Plane::new(width, height, 0.0),
            red: Plane::new(width, height, 0.0),
            textures: Textures::new(width, height, stream),
            light: turn(stream),
            detail,
            palette,
        }
    }

    /// A sky or wall above, a ground below, both shaded.
    fn draw_backdrop(&mut self, stream: &mut Stream) {
        let (width, height) = (self.luma.width, self.luma.height);
        let horizon = height as f32 * stream.between(0.15, 0.95);
        let [far, near] = [self.color(stream), self.color(stream)];
        let sky = Surface { fine: 0.6, coarse: stream.between(0.0, 16.0), streaks: 0.0, tint: 0.2 };
        let ground = self.surface(stream);
        let (rise, fall) = (stream.between(-40.0, 40.0), stream.between(-30.0, 30.0));
        let blur = stream.between(1.0, 12.0);
        for y in 0..height {
            let below = ((y as f32 - horizon) / blur + 0.5).clamp(0.0, 1.0);
            let surface = sky.mixed(ground, below);
            let color = far.mixed(near, below);
            let shade = rise * (y as f32 / height as f32 - 0.5);
            let row = y * width..(y + 1) * width;
            let fine = self.textures.fine.row(y);
            let coarse = self.textures.coarse.row(y);
            let streaks = self.textures.streaks.row(y);
            let luma = &mut self.luma.data[row.clone()];
            let blue = &mut self.blue.data[row.clone()];
            let red = &mut self.red.data[row];
            let slope = fall / width as f32;
            for x in 0..width {
                let fine = fine[x] * surface.fine;
                let coarse = coarse[x] * surface.coarse;
                luma[x] = color.luma + shade + slope * x as f32 + fine + coarse + streaks[x] * surface.streaks;
                blue[x] = color.blue - (fine + 0.3 * coarse) * surface.tint;
                red[x] = color.red + (fine + 0.3 * coarse) * surface.tint;
            }
        }
    }

    /// Objects from far to near: the nearer the larger, each with smaller parts on it and a shadow below it.
    fn draw_objects(&mut self, stream: &mut Stream) {
        let size = (self.luma.width.min(self.luma.height)) as f32;
        let count = stream.whole(6, 40);
        for index in 0..count {
            let nearness = (index + 1) as f32 / count as f32;
            let share = stream.unit();
            // Many small ones, few large ones.
            let radius = size * (0.015 + 0.33 * share * share * share * nearness + 0.03 * share);
            let object = self.object(radius, stream);
            if stream.chance(0.5) {
                self.draw(&object.shadow(self.light));
            }
            self.draw(&object);
            if radius > size * 0.04 {
                for _ in 0..stream.whole(0, 7) {
                    let part = self.part(&object, stream);
                    self.draw(&part);
                }
            }
        }
    }

    /// Leaves, stones, windows: many small objects in one part of the photo.
    fn draw_clutter(&mut self, stream: &mut Stream) {
        let (width, height) = (self.luma.width as f32, self.luma.height as f32);
        let (left, top) = (width * stream.between(-0.2, 0.8), height * stream.between(-0.2, 0.8));
        let (right, bottom) = (left + width * stream.between(0.3, 1.2), top + height * stream.between(0.3, 1.0));
        let radius = stream.between(1.5, 7.0);
        let colors = [self.color(stream), self.color(stream)];
        let number = (self.detail * (right - left) * (bottom - top) / (radius * radius * 16.0)) as u32;
        for _ in 0..number.min(CLUTTER_MAX) {
            let mut object = self.object(radius * stream.between(0.6, 1.6), stream);
            object.center = (stream.between(left, right), stream.between(top, bottom));
            object.color = colors[0].mixed(colors[1], stream.between(-0.2, 1.2));
            object.blur = 0.8;
            self.draw(&object);
        }
    }

    fn object(&self, radius: f32, stream: &mut Stream) -> Object {
        let (width, height) = (self.luma.width as f32, self.luma.height as f32);
        Object {
            center: (stream.between(0.0, width), stream.between(0.1, 1.0) * height),
            radius: (radius * stream.between(0.6, 1.6), radius * stream.between(0.6, 1.6)),
            turn: turn(stream),
            outline: outline(stream),
            color: self.color(stream),
            surface: self.surface(stream),
            relief: stream.between(0.0, 45.0),
            blur: stream.between(0.7, 2.2) * if stream.chance(0.25) { 4.0 } else { 1.0 },
        }
    }

    /// A smaller object on `whole`.
    fn part(&self, whole: &Object, stream: &mut Stream) -> Object {
        let radius = whole.radius.0.min(whole.radius.1) * stream.between(0.08, 0.45);
        let mut part = self.object(radius, stream);
        part.center.0 = whole.center.0 + whole.radius.0 * stream.between(-0.8, 0.8);
        part.center.1 = whole.center.1 + whole.radius.1 * stream.between(-0.8, 0.8);
        part.color = whole.color.mixed(part.color, stream.between(0.1, 0.9));
        part.blur = whole.blur;
        part
    }

    fn color(&self, stream: &mut Stream) -> Color {
        let [first, second] = [0, 1].map(|_| self.palette[stream.whole(0, 3) as usize]);
        let mut color = first.mixed(second, stream.unit());
        color.luma = (color.luma + stream.between(-45.0, 45.0)).clamp(12.0, 240.0);
        color
    }

    fn surface(&self, stream: &mut Stream) -> Surface {
        let rich = self.detail * if stream.chance(0.3) { 0.25 } else { 1.0 };
        Surface {
            fine: rich * stream.between(2.0, 34.0),
            coarse: rich * stream.between(4.0, 34.0),
            streaks: if stream.chance(0.35) { rich * stream.between(6.0, 40.0) } else { 0.0 },
            tint: stream.between(0.0, 0.4),
        }
    }

    fn draw(&mut self, object: &Object) {
        // The outline is 0 on the edge and 1 in the middle of the object.
        match object.outline {
            Outline::Ellipse => self.draw_within(object, |u, v, _| 1.0 - (u * u + v * v)),
            Outline::Box => self.draw_within(object, |u, v, _| 2.0 * (1.0 - u.abs().max(v.abs()))),
            Outline::Blob => self.draw_within(object, |u, v, coarse| 1.0 - (u * u + v * v) + 0.35 * coarse),
        }
    }

    #[inline]
    fn draw_within(&mut self, object: &Object, inside: impl Fn(f32, f32, f32) -> f32) {
        let (cos, sin) = object.turn;
        let (a, b) = object.radius;
        let half_width = REACH * ((a * cos) * (a * cos) + (b * sin) * (b * sin)).sqrt() + 1.0;
        let half_height = REACH * ((a * sin) * (a * sin) + (b * cos) * (b * cos)).sqrt() + 1.0;
        let columns = span(object.center.0, half_width, self.luma.width);
        let rows = span(object.center.1, half_height, self.luma.height);
        let hardness = a.min(b) / (2.0 * object.blur);
        let (light_u, light_v) = (self.light.0 * cos + self.light.1 * sin, self.light.1 * cos - self.light.0 * sin);
        let Surface { fine, coarse, streaks, tint } = object.surface;
        let Color { luma: base, blue: base_blue, red: base_red } = object.color;
        let (step_u, step_v) = (cos / a, -sin / b);
        for y in rows {
            let (dx, dy) = (columns.start as f32 - object.center.0, y as f32 - object.center.1);
            let (start_u, start_v) = ((dx * cos + dy * sin) / a, (dy * cos - dx * sin) / b);
            let at = y * self.luma.width + columns.start..y * self.luma.width + columns.end;
            let count = at.len();
            let luma = &mut self.luma.data[at.clone()][..count];
            let blue = &mut self.blue.data[at.clone()][..count];
            let red = &mut self.red.data[at.clone()][..count];
            let fines = &self.textures.fine.data[at.clone()][..count];
            let coarses = &self.textures.coarse.data[at.clone()][..count];
            let streak = &self.textures.streaks.data[at][..count];
            for x in 0..count {
                let (u, v) = (start_u + x as i32 as f32 * step_u, start_v + x as i32 as f32 * step_v);
                let cover = (inside(u, v, coarses[x]) * hardness).clamp(0.0, 1.0);
                let (grain, blotch) = (fines[x] * fine, coarses[x] * coarse);
                let lit = object.relief * (u * light_u + v * light_v);
                let tone = base + lit + grain + blotch + streak[x] * streaks;
                let shift = (grain + 0.3 * blotch) * tint;
                luma[x] += (tone - luma[x]) * cover;
                blue[x] += (base_blue - shift - blue[x]) * cover;
                red[x] += (base_red + shift - red[x]) * cover;
            }
        }
    }

    /// Adds the camera's noise and turns the planes into bytes.
    fn develop(&self, stream: &mut Stream) -> Vec<u8> {
        let seed = stream.next() as u32;
        let grain = self.detail.min(2.0) * stream.between(0.4, 3.6) / 128.0;
        let tint = grain * 0.7;
        let width = self.luma.width;
        let mut rgb = vec![0; self.luma.data.len() * 3];
        let mut row = vec![[0; 3]; width];
        for (y, bytes) in rgb.chunks_exact_mut(width * 3).enumerate() {
            let planes = self.luma.row(y).iter().zip(self.blue.row(y)).zip(self.red.row(y));
            for ((index, pixel), ((luma, blue), red)) in ((y * width) as u32..).zip(&mut row).zip(planes) {
                let bits = hash(seed, index);
                let byte = |shift: u32| (bits >> shift & 255) as i32;
                let luma = luma + (byte(0) + byte(8) - 255) as f32 * grain;
                let blue = blue + (byte(16) - 127) as f32 * tint;
                let red = red + (byte(24) - 127) as f32 * tint;
                *pixel = [
                    byte_of(luma + 1.402 * red),
                    byte_of(luma - 0.344 * blue - 0.714 * red),
                    byte_of(luma + 1.772 * blue),
                ];
            }
            for (to, from) in bytes.chunks_exact_mut(3).zip(&row) {
                to.copy_from_slice(from);
            }
        }
        rgb
    }
}

impl Textures {
    fn new(width: usize, height: usize, stream: &mut Stream) -> Self {
        let mut plane = |octaves: &[((f32, f32), f32)]| {
            let mut plane = Plane::new(width, height, 0.0);
            for &(cell, amplitude) in octaves {
                plane.add_noise(cell, amplitude, stream);
            }
            plane
        };
        Self {
            fine: plane(&[((1.2, 1.2), 0.7), ((2.6, 2.6), 0.6), ((5.0, 5.0), 0.6)]),
            coarse: plane(&[((11.0, 11.0), 0.5), ((23.0, 23.0), 0.6), ((61.0, 61.0), 0.8)]),
            streaks: plane(&[((1.8, 9.0), 0.5), ((4.5, 30.0), 0.6)]),
        }
    }
}

impl Color {
    fn mixed(self, other: Self, share: f32) -> Self {
        let mix = |a: f32, b: f32| a + (b - a) * share;
        Self { luma: mix(self.luma, other.luma), blue: mix(self.blue, other.blue), red: mix(self.red, other.red) }
    }
}

impl Surface {
    fn mixed(self, other: Self, share: f32) -> Self {
        let mix = |a: f32, b: f32| a + (b - a) * share;
        Self {
            fine: mix(self.fine, other.fine),
            coarse: mix(self.coarse, other.coarse),
            streaks: mix(self.streaks, other.streaks),
            tint: mix(self.tint, other.tint),
        }
    }
}

impl Object {
    /// A soft dark copy, away from the light.
    fn shadow(&self, light: (f32, f32)) -> Self {
        let plain = Surface { fine: 3.0, coarse: 3.0, streaks: 0.0, tint: 0.0 };
        let (a, b) = self.radius;
        Self {
            center: (self.center.0 - 0.3 * a * light.0, self.center.1 + 0.4 * b),
            radius: self.radius,
            turn: self.turn,
            outline: Outline::Ellipse,
            color: Color { luma: 28.0, ..self.color },
            surface: plain,
            relief: 0.0,
            blur: self.blur + a.min(b) * 0.2,
        }
    }
}

fn outline(stream: &mut Stream) -> Outline {
    match stream.whole(0, 9) {
        0..=2 => Outline::Ellipse,
        3..=5 => Outline::Box,
        _ => Outline::Blob,
    }
}

/// A direction: cosine and sine of an angle, made without either function.
fn turn(stream: &mut Stream) -> (f32, f32) {
    let t = stream.between(-1.0, 1.0);
    let sign = if stream.chance(0.5) { 1.0 } else { -1.0 };
    (sign * (1.0 - t * t) / (1.0 + t * t), sign * 2.0 * t / (1.0 + t * t))
}

/// The nearest byte, read off the mantissa: a vector operation where a saturating cast is none.
#[inline]
fn byte_of(value: f32) -> u8 {
    (value.clamp(0.0, 255.0) + (1 << 23) as f32).to_bits() as u8
}

/// The pixels within `half` of `center`, cut to `0..limit`.
fn span(center: f32, half: f32, limit: usize) -> std::ops::Range<usize> {
    let start = (center - half).max(0.0) as usize;
    let end = ((center + half + 1.0).max(0.0) as usize).min(limit);
    start.min(end)..end
}
