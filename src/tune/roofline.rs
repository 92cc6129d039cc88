//! How fast a GPU could be at most: from what a sample needs in arithmetic and bytes, and from what the GPU has of both.
//! It is a bound and no forecast: it knows no kernels, no launches and no caches.

use serde::{Deserialize, Serialize};

/// Where a number comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The vendor's data sheet.
    Datasheet,
    /// Measured by this project.
    Measured,
}

/// In what a model computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// 32-bit floats on the ordinary pipes.
    Float32,
    /// 32-bit floats, shortened for the tensor cores (TF32).
    TensorFloat32,
    /// 16-bit floats on the tensor cores, either kind, sums in 32 bits.
    Half,
}

/// A GPU model: rates of dense arithmetic, of its memory, and of copies from the host.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct GpuKind {
    /// The name, as the driver gives it, or its beginning.
    pub name: &'static str,
    /// Operations a second in 32-bit floats.
    pub float32_flops: f64,
    /// The same in TF32.
    pub tensor_float32_flops: f64,
    /// The same in 16-bit floats with sums in 32 bits, no sparsity.
    pub half_flops: f64,
    /// Bytes a second of device memory.
    pub memory_bytes_per_s: f64,
    /// Bytes a second from page-locked host memory.
    pub host_bytes_per_s: f64,
    /// Where arithmetic and memory come from.
    pub source: Source,
    /// Where the copies come from.
    pub host_source: Source,
    /// Title of the source.
    pub citation: &'static str,
}

/// PCI Express 4.0 and 5.0 with 16 lanes, after line coding, in bytes a second.
const PCIE_4: f64 = 31.5e9;
const PCIE_5: f64 = 63.0e9;

const fn gpu(
    name: &'static str,
    tera: (f64, f64, f64),
    memory_gb: f64,
    host_bytes_per_s: f64,
    citation: &'static str,
) -> GpuKind {
    GpuKind {
        name,
        float32_flops: tera.0 * 1e12,
        tensor_float32_flops: tera.1 * 1e12,
        half_flops: tera.2 * 1e12,
        memory_bytes_per_s: memory_gb * 1e9,
        host_bytes_per_s,
        source: Source::Datasheet,
        host_source: Source::Datasheet,
        citation,
    }
}

/// Longer names before their beginnings.
const GPUS: [GpuKind; 8] = [
    gpu(
        "NVIDIA GeForce RTX 4090",
        (82.6, 82.6, 165.2),
        1008.0,
        PCIE_4,
        "NVIDIA Ada GPU Architecture, white paper, appendix A: GeForce RTX 4090",
    ),
    gpu("NVIDIA A100-SXM4-40GB", (19.5, 156.0, 312.0), 1555.0, PCIE_4, "NVIDIA A100 Tensor Core GPU, data sheet"),
    gpu("NVIDIA A100-SXM4-80GB", (19.5, 156.0, 312.0), 2039.0, PCIE_4, "NVIDIA A100 80GB Tensor Core GPU, data sheet"),
    gpu("NVIDIA A100", (19.5, 156.0, 312.0), 1935.0, PCIE_4, "NVIDIA A100 80GB PCIe, product brief"),
    gpu("NVIDIA L40S", (91.6, 183.0, 362.05), 864.0, PCIE_4, "NVIDIA L40S GPU, data sheet"),
    gpu("NVIDIA H100 PCIe", (51.2, 378.0, 756.0), 2000.0, PCIE_5, "NVIDIA H100 Tensor Core GPU, data sheet, PCIe"),
    gpu("NVIDIA H100", (66.9, 494.7, 989.4), 3350.0, PCIE_5, "NVIDIA H100 Tensor Core GPU, data sheet, SXM5"),
    GpuKind {
        // What page-locked copies reach there: benches/runs/2026-11-30-h200-copies.json.
        host_bytes_per_s: 54.5e9,
        host_source: Source::Measured,
        ..gpu("NVIDIA H200", (66.9, 494.7, 989.4), 4800.0, PCIE_5, "NVIDIA H200 Tensor Core GPU, data sheet, SXM")
    },
];

/// The GPUs that are known.
#[must_use]
pub fn known_gpus() -> &'static [GpuKind] {
    &GPUS
}

/// The known GPU of this name, as the driver writes it; `None` for others.
#[must_use]
pub fn known_gpu(name: &str) -> Option<&'static GpuKind> {
    GPUS.iter().find(|gpu| name.strip_prefix(gpu.name).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric)))
}

impl GpuKind {
    /// Operations a second in `precision`.
    #[must_use]
    pub fn flops(&self, precision: Precision) -> f64 {
        match precision {
            Precision::Float32 => self.float32_flops,
            Precision::TensorFloat32 => self.tensor_float32_flops,
            Precision::Half => self.half_flops,
        }
    }
}

/// The most samples a second that arithmetic, device memory and copies each allow.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Roofline {
    /// By arithmetic.
    pub compute_per_s: f64,
    /// By the bandwidth of device memory.
    pub memory_per_s: f64,
    /// By copies from the host.
    pub host_per_s: f64,
}

impl Roofline {
    /// For samples that each need `flops` operations and `memory_bytes` from or to device memory, forward and backward,
    /// and `host_bytes` from the host. What is 0 or no number bounds nothing.
    #[must_use]
    pub fn new(gpu: &GpuKind, precision: Precision, flops: f64, memory_bytes: f64, host_bytes: f64) -> Self {
        let bound = |have: f64, need: f64| if need > 0.0 { have / need } else { f64::MAX };
        Self {
            compute_per_s: bound(gpu.flops(precision), flops),
            memory_per_s: bound(gpu.memory_bytes_per_s, memory_bytes),
            host_per_s: bound(gpu.host_bytes_per_s, host_bytes),
        }
    }

    /// The lowest of the three, and its name: `compute`, `memory` or `host`.
    #[must_use]
    pub fn lowest(&self) -> (f64, &'static str) {
        let bounds = [(self.compute_per_s, "compute"), (self.memory_per_s, "memory"), (self.host_per_s, "host")];
        bounds.into_iter().min_by(|one, other| one.0.total_cmp(&other.0)).unwrap_or((f64::MAX, "compute"))
    }

    /// How near a rate comes to the lowest bound, 1 at the bound.
    #[must_use]
    pub fn share(&self, per_s: f64) -> f64 {
        per_s / self.lowest().0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_found_by_the_names_that_drivers_write() {
        for (name, memory) in [
            ("NVIDIA H200", 4.8e12),
            ("NVIDIA H100 80GB HBM3", 3.35e12),
            ("NVIDIA H100 PCIe", 2.0e12),
            ("NVIDIA A100-SXM4-80GB", 2.039e12),
            ("NVIDIA A100-SXM4-40GB", 1.555e12),
            ("NVIDIA A100 80GB PCIe", 1.935e12),
            ("NVIDIA L40S", 8.64e11),
            ("NVIDIA GeForce RTX 4090", 1.008e12),
        ] {
            assert_eq!(known_gpu(name).map(|gpu| gpu.memory_bytes_per_s), Some(memory), "{name}");
        }
        for name in ["NVIDIA L40", "NVIDIA GeForce RTX 4090D", "NVIDIA H2000", "Tesla V100", ""] {
            assert!(known_gpu(name).is_none(), "{name}");
        }
    }

    #[test]
    fn every_number_has_a_source() {
        for gpu in known_gpus() {
            assert!(gpu.citation.starts_with("NVIDIA "), "{}", gpu.name);
            assert!(gpu.float32_flops <= gpu.tensor_float32_flops && gpu.tensor_float32_flops < gpu.half_flops);
        }
    }

    #[test]
    fn resnet_50_is_bound_by_arithmetic_or_memory_as_its_bytes_say() {
        let h200 = known_gpu("NVIDIA H200").unwrap();
        // 4.1 G multiply-adds forward, three times that with the backward pass, two operations each.
        let flops = 4.1e9 * 2.0 * 3.0;
        let roofline = Roofline::new(h200, Precision::Half, flops, 0.4e9, 150_528.0);
        assert!((roofline.compute_per_s - 40_220.0).abs() < 100.0, "{roofline:?}");
        assert!((roofline.memory_per_s - 12_000.0).abs() < 1.0);
        assert!((roofline.host_per_s - 362_059.0).abs() < 1.0);
        assert_eq!(roofline.lowest().1, "memory");
        assert!((roofline.share(4_800.0) - 0.4).abs() < 1e-9);
        let slower = Roofline::new(h200, Precision::Float32, flops, 0.4e9, 0.0);
        assert_eq!(slower.lowest().1, "compute");
    }

    #[test]
    fn what_is_not_needed_bounds_nothing() {
        let roofline = Roofline::new(&known_gpus()[0], Precision::Half, 0.0, f64::NAN, 1e6);
        assert_eq!(roofline.lowest(), (31.5e9 / 1e6, "host"));
    }
}
