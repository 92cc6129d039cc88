//! From pixels of a finished sample to what a model eats. Here the host is the only device; it never decodes and never
//! chooses geometry.

pub mod cpu;

pub use cpu::RowWriter;
