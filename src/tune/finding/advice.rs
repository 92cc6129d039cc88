//! What to do about each kind of finding, in a sentence or two. Nothing here opens a door wider than it must be.

use super::FindingKind;

/// What helps.
pub(super) fn advice(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::Storage => {
            "keep the shards on faster or nearer storage, or read them once before training; `brimful bench storage` \
             tells which way of reading suits it"
        }
        FindingKind::Decode => "give the loader more threads: num_workers=0 takes all processors it may use",
        FindingKind::CpuSaturated => {
            "use more processors, smaller stored images (`brimful convert` resizes), or on a GPU with JPEG engines \
             decoder=\"auto\""
        }
        FindingKind::CopyPageable => {
            "copy from page-locked memory: DataLoader(..., device=\"cuda\") does, or pin_memory=True with \
             tensor.to(device, non_blocking=True)"
        }
        FindingKind::CopyShare => {
            "copy bytes instead of floats and on a stream of its own: DataLoader(..., device=\"cuda\") normalises on \
             the GPU and copies ahead"
        }
        FindingKind::DramBound => {
            "move fewer bytes: bfloat16 autocast, channels_last for convolutions, torch.compile to fuse what stands \
             between matrix products"
        }
        FindingKind::LaunchBound => {
            "give the GPU more work a launch: a larger batch, torch.compile(mode=\"reduce-overhead\") or CUDA graphs, \
             fused optimisers"
        }
        FindingKind::SyncInStep => {
            "take .item(), .cpu(), printing of tensors and shapes that depend on values out of the step; \
             torch.cuda.set_sync_debug_mode(\"warn\") shows where they are"
        }
        FindingKind::Allreduce => {
            "overlap or shrink it: a larger bucket_cap_mb, no_sync() under accumulation, bf16_compress_hook where the \
             model bears rounded gradients"
        }
        FindingKind::Fragmentation => {
            "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, keep shapes fixed (drop_last=True), and settle the \
             batch size before long runs"
        }
        FindingKind::AmpOverflow => {
            "use bfloat16, which needs no scaler, or look for the layer whose numbers leave the range of float16"
        }
        FindingKind::Throttled => "have cooling, airflow and power supply of the machine looked at",
        FindingKind::PcieWidth => {
            "seat the card in a slot with all lanes and have the link looked at; `lspci -vv` shows its state under load"
        }
        FindingKind::DevicePermission => {
            "have whoever runs the machine put this user into the group that owns the device nodes, or start the \
             container with the NVIDIA runtime; do not open the nodes to everybody"
        }
        FindingKind::VersionMismatch => "bring driver and libraries to versions that the vendor lists together",
        FindingKind::SharedGpu => {
            "compare on a GPU of your own; to share one on purpose, bound each process by MIG, by MPS thread \
             percentage, and by torch.cuda.set_per_process_memory_fraction"
        }
    }
}
