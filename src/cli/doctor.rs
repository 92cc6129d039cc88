//! `brimful doctor`: what this build contains and what this machine offers. It looks and tells; it judges nothing and
//! changes nothing.

mod cgroup;
mod cpus;
mod engines;
mod gpus;
mod libraries;
mod memory;
mod numa;
mod places;

use std::env;
use std::io::{self, Write};

use serde::Serialize;

use super::args::DoctorArgs;
use super::failure::Outcome;
use super::folders;
use super::output::{Output, bytes_text};
use super::system::System;
use crate::decode;

use cgroup::Cgroup;
use cpus::Cpus;
use engines::Engines;
use gpus::Gpus;
use libraries::Library;
use memory::{Limits, Memory};
use numa::NumaNode;
use places::Place;

pub(super) fn run(args: &DoctorArgs, output: &mut Output) -> anyhow::Result<Outcome> {
    let findings = Findings::look(args, &System::here());
    output.document(&args.document, &findings, |output| findings.print(output))?;
    Ok(Outcome::bad_if(findings.filesystems.iter().any(|place| place.error.is_some())))
}

/// All that was found, in the order of the document.
#[derive(Debug, Serialize)]
struct Findings {
    decoders: Vec<&'static str>,
    features: Vec<&'static str>,
    libraries: Vec<Library>,
    gpus: Gpus,
    jpeg_engines: Vec<Engines>,
    cpus: Cpus,
    numa: Vec<NumaNode>,
    cgroup: Cgroup,
    memory: Memory,
    limits: Limits,
    filesystems: Vec<Place>,
}

impl Findings {
    fn look(args: &DoctorArgs, system: &System) -> Self {
        let library_path = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        Self {
            decoders: decode::backends().to_vec(),
            features: features(),
            libraries: libraries::look(system, &library_path),
            gpus: Gpus::look(system),
            jpeg_engines: engines::look(&folders::nvjpeg()),
            cpus: Cpus::look(system),
            numa: numa::look(system),
            cgroup: Cgroup::look(system),
            memory: Memory::look(system),
            limits: Limits::look(system),
            filesystems: places::look(system, &args.paths, &folders::cache()),
        }
    }

    fn print(&self, output: &mut Output) -> io::Result<()> {
        line(output, "brimful", env!("CARGO_PKG_VERSION"))?;
        line(output, "decoders", &self.decoders.join(", "))?;
        line(output, "features", &self.features.join(", "))?;
        for library in &self.libraries {
            line(output, "library", &library.to_string())?;
        }
        self.gpus.lines().iter().try_for_each(|text| line(output, "gpu", text))?;
        self.jpeg_engines.iter().try_for_each(|engines| line(output, "engines", &engines.line()))?;
        line(output, "cpu", &self.cpus.to_string())?;
        for node in &self.numa {
            line(output, "numa", &node.to_string())?;
        }
        line(output, "cgroup", &self.cgroup.to_string())?;
        line(output, "memory", &self.memory.to_string())?;
        line(output, "limits", &self.limits.to_string())?;
        for place in &self.filesystems {
            line(output, "path", &place.to_string())?;
        }
        Ok(())
    }
}

/// Every optional feature, and whether this build has it.
const FEATURES: [(&str, bool); 6] = [
    ("cli", cfg!(feature = "cli")),
    ("turbo", cfg!(feature = "turbo")),
    ("cuda", cfg!(feature = "cuda")),
    ("io-uring", cfg!(feature = "io-uring")),
    ("nvml", cfg!(feature = "nvml")),
    ("parquet", cfg!(feature = "parquet")),
];

fn features() -> Vec<&'static str> {
    FEATURES.into_iter().filter(|(_, built)| *built).map(|(name, _)| name).collect()
}

fn line(output: &mut Output, name: &str, text: &str) -> io::Result<()> {
    writeln!(output, "{name:<9} {text}")
}

/// A limit in bytes, or that there is none.
fn limit_text(limit: Option<u64>) -> String {
    limit.map_or_else(|| "no limit".into(), bytes_text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::DocumentArgs;
    use crate::cli::system::fake;

    #[test]
    fn every_feature_of_the_package_is_known() {
        let package = include_str!("../../Cargo.toml");
        let (_, section) = package.split_once("[features]\n").unwrap();
        let lines = section.lines().take_while(|line| !line.starts_with('['));
        let names = lines.filter_map(|line| line.split_once(" = ")).map(|(name, _)| name);
        let names: Vec<&str> = names.filter(|name| !name.starts_with('#') && *name != "default").collect();
        assert_eq!(names, FEATURES.map(|(name, _)| name));
    }

    #[test]
    fn a_machine_that_says_nothing_has_every_key() {
        let (folder, system) = fake::machine(&[]);
        let document = DocumentArgs { json: true, out: None };
        let args = DoctorArgs { paths: vec![folder.path().into(), "/no/such/path".into()], document };
        let findings = serde_json::to_value(Findings::look(&args, &system)).unwrap();
        for key in ["decoders", "features", "libraries", "gpus", "cpus", "numa", "cgroup", "filesystems"] {
            assert!(findings.get(key).is_some(), "{key}");
        }
        assert!(findings["gpus"].as_array().unwrap().is_empty());
        let places = findings["filesystems"].as_array().unwrap();
        assert!(places.iter().any(|place| place["error"].is_string()));
        assert!(places.iter().any(|place| place["type"].is_string()));
    }
}
