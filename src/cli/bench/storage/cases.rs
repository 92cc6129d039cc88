//! Which cases are measured: every method in every pattern and state of the cache at one set of sizes, then threads,
//! blocks and depths swept one at a time, cold where anything is.

use crate::cli::args::StorageBenchArgs;
use crate::cli::machine::cores_available;
use crate::storage::{Cache, Case, Method, Pattern};
use crate::{Error, ErrorKind};

/// Bytes of a request where nothing else was asked for.
pub(super) const BLOCK_BYTES: u64 = 256 << 10;

/// Requests under way in each thread where nothing else was asked for.
const QUEUE_DEPTH: usize = 16;

/// Cases in the order in which they are measured: cold ones first, so that warm ones warm up once.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cases(pub(super) Vec<Case>);

impl Cases {
    /// The cases of `methods` and `caches`, the other lists as they were typed.
    ///
    /// # Errors
    /// Where nothing is left to measure: samples at random without samples, or only the impossible.
    pub(super) fn plan(
        args: &StorageBenchArgs,
        methods: &[Method],
        caches: &[Cache],
        has_samples: bool,
    ) -> crate::Result<Self> {
        let patterns: Vec<Pattern> =
            args.patterns.iter().copied().filter(|pattern| has_samples || *pattern != Pattern::Members).collect();
        let base = Base {
            threads: usual(&args.threads, cores_available()),
            block_bytes: usual(&args.blocks, BLOCK_BYTES),
            depth: usual(&args.depths, QUEUE_DEPTH),
        };
        let mut cases = Vec::new();
        for &cache in caches {
            for &pattern in &patterns {
                for &method in methods.iter().filter(|method| !(cache == Cache::Warm && method.is_direct())) {
                    cases.push(base.case(method, pattern, cache));
                }
            }
        }
        // Sizes matter to storage; where only the cache is measured they are swept there.
        match (caches.contains(&Cache::Cold), caches.first()) {
            (true, _) => base.sweep(args, methods, &patterns, Cache::Cold, &mut cases),
            (false, Some(Cache::Warm)) => {
                let cached: Vec<Method> = methods.iter().copied().filter(|method| !method.is_direct()).collect();
                base.sweep(args, &cached, &patterns, Cache::Warm, &mut cases);
            }
            (false, _) => {}
        }
        let mut seen = std::collections::HashSet::new();
        cases.retain(|case| seen.insert(*case));
        cases.sort_by_key(|case| case.cache == Cache::Warm);
        if cases.is_empty() {
            let message = "nothing is left to measure: methods past the cache are never warm, and samples at random need \
                           shards that are not compressed";
            return Err(Error::new(ErrorKind::InvalidOption, message));
        }
        Ok(Self(cases))
    }
}

/// The sizes at which everything is compared.
struct Base {
    threads: usize,
    block_bytes: u64,
    depth: usize,
}

impl Base {
    fn case(&self, method: Method, pattern: Pattern, cache: Cache) -> Case {
        Case {
            method,
            pattern,
            threads: self.threads,
            block_bytes: self.block_bytes,
            queue_depth: if method.has_depth() { self.depth } else { 1 },
            cache,
        }
    }

    /// Threads and depths where requests lie anywhere, blocks where whole shards are read, as far as that is asked for.
    fn sweep(
        &self,
        args: &StorageBenchArgs,
        methods: &[Method],
        patterns: &[Pattern],
        cache: Cache,
        cases: &mut Vec<Case>,
    ) {
        let at_random = patterns.iter().copied().find(|pattern| pattern.is_random()).or(patterns.first().copied());
        let in_blocks = patterns.iter().copied().find(|pattern| *pattern != Pattern::Members);
        for &method in methods {
            if let Some(pattern) = at_random {
                let base = self.case(method, pattern, cache);
                cases.extend(args.threads.iter().map(|&threads| Case { threads, ..base }));
                let depths = args.depths.iter().filter(|_| method.has_depth());
                cases.extend(depths.map(|&queue_depth| Case { queue_depth, ..base }));
            }
            if let Some(pattern) = in_blocks {
                let base = self.case(method, pattern, cache);
                cases.extend(args.blocks.iter().map(|&block_bytes| Case { block_bytes, ..base }));
            }
        }
    }
}

/// The usual value where it is among those that were typed, otherwise the first of them.
fn usual<T: Copy + PartialEq>(typed: &[T], usual: T) -> T {
    if typed.contains(&usual) { usual } else { typed.first().copied().unwrap_or(usual) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Arguments, BenchCommand, Command};
    use clap::Parser;

    fn plan(typed: &[&str], has_samples: bool) -> Result<Vec<Case>, crate::Error> {
        let all = ["brimful", "bench", "storage", "a.tar"].iter().chain(typed);
        let Command::Bench(BenchCommand::Storage(args)) = Arguments::try_parse_from(all).unwrap().command else {
            unreachable!("that is what was typed")
        };
        let methods = if args.methods.is_empty() { Method::ALL.to_vec() } else { args.methods.clone() };
        Cases::plan(&args, &methods, &args.cache, has_samples).map(|cases| cases.0)
    }

    #[test]
    fn one_of_each_is_one_case() {
        let typed =
            ["--methods=pread", "--patterns=sequential", "--threads=3", "--blocks=64KiB", "--depths=2", "--cache=cold"];
        let case = Case {
            method: Method::Pread,
            pattern: Pattern::Sequential,
            threads: 3,
            block_bytes: 65_536,
            queue_depth: 1,
            cache: Cache::Cold,
        };
        assert_eq!(plan(&typed, true).unwrap(), [case]);
    }

    #[test]
    fn cold_comes_before_warm_and_nothing_twice() {
        let cases = plan(&[], true).unwrap();
        let first_warm = cases.iter().position(|case| case.cache == Cache::Warm).unwrap();
        assert!(cases[first_warm..].iter().all(|case| case.cache == Cache::Warm && !case.method.is_direct()));
        assert_eq!(cases.iter().collect::<std::collections::HashSet<_>>().len(), cases.len());
        assert!(cases.len() > 60 && cases.len() < 100, "{}", cases.len());
        for method in Method::ALL {
            assert!(cases.iter().any(|case| case.method == method && case.threads == 16));
        }
    }

    #[test]
    fn sizes_are_swept_in_the_cache_where_nothing_is_cold() {
        let cases = plan(&["--cache=warm", "--threads=1,2,4", "--blocks=64KiB,1MiB", "--depths=1,4"], true).unwrap();
        assert!(cases.iter().all(|case| case.cache == Cache::Warm && !case.method.is_direct()));
        for method in [Method::Mmap, Method::MmapPopulate, Method::Pread] {
            let of_method = || cases.iter().filter(move |case| case.method == method);
            assert_eq!(
                of_method().map(|case| case.threads).collect::<std::collections::BTreeSet<_>>(),
                [1, 2, 4].into()
            );
            assert!(of_method().any(|case| case.block_bytes == 1 << 20));
        }
    }

    #[test]
    fn nothing_to_measure_is_refused() {
        assert!(plan(&["--patterns=members"], false).is_err());
        assert!(plan(&["--methods=direct", "--cache=warm"], true).is_err());
        assert!(
            plan(&["--patterns=members,blocks"], false).unwrap().iter().all(|case| case.pattern == Pattern::Blocks)
        );
    }
}
