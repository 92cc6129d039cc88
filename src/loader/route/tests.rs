//! The router before simulated loaders with rates measured on an H200 with 16 cores; no thread runs here.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// Images of a batch.
const BATCH: f64 = 256.0;

/// Images a second of the engines alone.
const ENGINES: f64 = 13_500.0;

/// A loader and its consumer: two lanes side by side, a bounded number of batches begun, batches in order.
struct Simulation {
    router: Router,
    threads: f64,
    cpu: f64,
    engine: f64,
    /// Images a second that the consumer takes when it never waits.
    consumer: f64,
    unsupported: f64,
    refused: f64,
    /// Largest deviation of one batch's times, as a share of them.
    noise: f64,
    random: u64,
    cpu_free: f64,
    engine_free: f64,
    consumer_free: f64,
    taken: VecDeque<f64>,
    taken_last: f64,
    waited_last: f64,
}

/// Batches begun before the first is taken.
const PREFETCH: usize = 4;

impl Simulation {
    fn new(cpu: f64, engine: f64, consumer: f64) -> Self {
        Self {
            router: Router::new(RouteMode::Auto, 16),
            threads: 16.0,
            cpu,
            engine,
            consumer,
            unsupported: 0.0,
            refused: 0.0,
            noise: 0.15,
            random: 7,
            cpu_free: 0.0,
            engine_free: 0.0,
            consumer_free: 0.0,
            taken: VecDeque::from(vec![0.0; PREFETCH]),
            taken_last: 0.0,
            waited_last: 0.0,
        }
    }

    /// Makes and takes one batch.
    fn batch(&mut self) {
        let begun = self.taken.pop_front().unwrap_or(0.0);
        let supported = (BATCH * (1.0 - self.unsupported)) as usize;
        let engine_images = (0..supported).filter(|_| self.router.route() == Lane::Engine).count() as f64;
        let refused = (engine_images * self.refused).round();
        let cpu_images = BATCH - engine_images + refused;
        let cpu_time = cpu_images / self.cpu * self.deviation();
        let engine_time = engine_images / self.engine * self.deviation();
        self.cpu_free = self.cpu_free.max(begun) + cpu_time;
        if engine_images > 0.0 {
            self.engine_free = self.engine_free.max(begun) + engine_time;
        }
        let ready = if engine_images > 0.0 { self.cpu_free.max(self.engine_free) } else { self.cpu_free };
        let waited = (ready - self.consumer_free).max(0.0);
        let taken = ready.max(self.consumer_free);
        self.consumer_free = taken + BATCH / self.consumer * self.deviation();
        self.taken.push_back(taken);
        let time = |seconds: f64| Duration::from_secs_f64(seconds.max(0.0));
        self.router.observe(Observation {
            elapsed: time(taken - self.taken_last),
            waited: time(waited),
            cpu_images: cpu_images as u64,
            cpu_busy: time(cpu_time * self.threads),
            engine_images: engine_images as u64,
            engine_refused: refused as u64,
            engine_busy: time(engine_time),
            unsupported: (BATCH - supported as f64) as u64,
        });
        self.waited_last = waited;
        self.taken_last = taken;
    }

    fn deviation(&mut self) -> f64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        1.0 + self.noise * ((self.random >> 33) as f64 / (1u64 << 30) as f64 - 1.0)
    }

    /// Runs `batches`; the share after each, images a second, and the share of time that the consumer waited.
    fn run(&mut self, batches: usize) -> Run {
        let began = self.taken_last;
        let mut waited = 0.0;
        let shares = (0..batches).map(|_| {
            self.batch();
            waited += self.waited_last;
            self.router.share()
        });
        let shares: Vec<f64> = shares.collect();
        let took = self.taken_last - began;
        Run { shares, rate: BATCH * batches as f64 / took, waits: waited / took }
    }
}

struct Run {
    shares: Vec<f64>,
    rate: f64,
    waits: f64,
}

impl Run {
    fn mean(&self) -> f64 {
        self.shares.iter().sum::<f64>() / self.shares.len() as f64
    }

    /// Distance between the smallest and the largest share.
    fn spread(&self) -> f64 {
        let ends = self.shares.iter().fold((1.0_f64, 0.0_f64), |(low, high), &share| (low.min(share), high.max(share)));
        ends.1 - ends.0
    }
}

#[test]
fn threads_alone_feed_a_consumer_that_is_slower_than_they_are() {
    for cpu in [7_700.0, 9_050.0, 15_000.0] {
        let mut resnet50 = Simulation::new(cpu, ENGINES, 4_720.0);
        resnet50.run(50);
        let run = resnet50.run(400);
        assert_eq!(run.spread(), 0.0, "{cpu}");
        assert_eq!(run.mean(), 0.0, "{cpu}");
        assert!(run.waits < 0.01, "{cpu}: waits {}", run.waits);
    }
}

#[test]
fn the_engines_take_what_the_threads_cannot() {
    for cpu in [7_700.0, 9_050.0] {
        let mut resnet18 = Simulation::new(cpu, ENGINES, 13_030.0);
        resnet18.run(50);
        let run = resnet18.run(400);
        let missing = 1.0 - cpu / 13_030.0;
        assert!((missing..missing + 0.15).contains(&run.mean()), "{cpu}: {} of {missing}", run.mean());
        assert!(run.rate > 0.98 * 13_030.0, "{cpu}: {}", run.rate);
        assert!(run.spread() < 0.1, "{cpu}: {}", run.spread());
    }
}

#[test]
fn without_a_limit_both_work_at_their_rates() {
    for (cpu, engine) in [(7_700.0, 12_700.0), (9_050.0, 15_300.0), (15_000.0, 13_500.0)] {
        let mut bench = Simulation::new(cpu, engine, 1e9);
        bench.run(50);
        let run = bench.run(400);
        let balanced = engine / (cpu + engine);
        assert!((run.mean() - balanced).abs() < 0.05, "{cpu} {engine}: {} of {balanced}", run.mean());
        assert!(run.rate > 0.88 * (cpu + engine), "{cpu} {engine}: {}", run.rate);
    }
}

#[test]
fn the_share_follows_a_consumer_that_changes() {
    let mut simulation = Simulation::new(8_000.0, ENGINES, 4_720.0);
    assert!(simulation.run(100).shares[99] == 0.0);
    simulation.consumer = 13_030.0;
    simulation.run(50);
    let run = simulation.run(100);
    assert!((0.35..0.55).contains(&run.mean()), "{}", run.mean());
    simulation.consumer = 4_720.0;
    simulation.run(50);
    assert_eq!(simulation.run(100).mean(), 0.0);
    simulation.cpu = 3_000.0;
    simulation.run(50);
    let run = simulation.run(100);
    assert!((0.3..0.5).contains(&run.mean()), "slower threads: {}", run.mean());
}

#[test]
fn a_pause_of_the_consumer_changes_little() {
    let mut simulation = Simulation::new(8_000.0, ENGINES, 13_030.0);
    simulation.run(100);
    let before = simulation.router.share();
    simulation.consumer_free += 60.0;
    let run = simulation.run(30);
    assert!(run.shares.iter().all(|share| (share - before).abs() < 0.12), "{before}: {:?}", run.shares);
}

#[test]
fn slow_storage_sends_nothing_to_the_engines() {
    let mut router = Router::new(RouteMode::Auto, 16);
    for _ in 0..200 {
        // Threads at work for a third of the time: they wait for bytes, as the consumer does.
        router.observe(Observation {
            elapsed: Duration::from_millis(100),
            waited: Duration::from_millis(60),
            cpu_images: 256,
            cpu_busy: Duration::from_millis(16 * 32),
            ..Observation::default()
        });
        assert_eq!(router.share(), 0.0);
    }
}

#[test]
fn engines_that_refuse_get_nothing() {
    let mut simulation = Simulation::new(8_000.0, ENGINES, 13_030.0);
    simulation.run(60);
    simulation.refused = 0.9;
    simulation.run(50);
    assert_eq!(simulation.run(100).mean(), 0.0);
    simulation.refused = 0.0;
    simulation.run(600);
    assert!(simulation.router.share() > 0.3, "they are tried again: {}", simulation.router.share());
}

#[test]
fn images_that_engines_do_not_take_are_made_up_for() {
    let mut simulation = Simulation::new(8_000.0, ENGINES, 13_030.0);
    simulation.unsupported = 0.3;
    simulation.run(50);
    let run = simulation.run(200);
    assert!(run.rate > 0.97 * 13_030.0, "{}", run.rate);
}

#[test]
fn fixed_modes_never_move() {
    for (mode, lane, share) in [(RouteMode::Cpu, Lane::Cpu, 0.0), (RouteMode::Engine, Lane::Engine, 1.0)] {
        let mut simulation = Simulation::new(8_000.0, ENGINES, 13_030.0);
        simulation.router = Router::new(mode, 16);
        simulation.run(20);
        assert_eq!((simulation.router.route(), simulation.router.share()), (lane, share));
    }
}

#[test]
fn a_share_is_spread_evenly() {
    for share in [0.0, 0.1, 0.25, 1.0 / 3.0, 0.5, 0.61, 0.9, 1.0] {
        for run in [1, 32] {
            let mut router = Router { share, ..Router::new(RouteMode::Auto, 1).in_runs_of(run) };
            let lanes: Vec<bool> = (0..4000).map(|_| router.route() == Lane::Engine).collect();
            for window in lanes.windows(40) {
                let engine = window.iter().filter(|&&is_engine| is_engine).count() as f64;
                assert!((engine - share * 40.0).abs() <= run as f64 + 1e-6, "{share} in runs of {run}: {engine}");
            }
        }
    }
}

#[test]
fn engines_get_runs_however_small_their_share() {
    for share in [0.001, 0.03, 0.2, 0.6] {
        let mut router = Router { share, ..Router::new(RouteMode::Auto, 1).in_runs_of(32) };
        let lanes: Vec<Lane> = (0..100_000).map(|_| router.route()).collect();
        let runs = lanes.chunk_by(|one, other| one == other).filter(|run| run[0] == Lane::Engine);
        let lens: Vec<usize> = runs.map(<[Lane]>::len).collect();
        assert!(lens[..lens.len() - 1].iter().all(|len| len % 32 == 0), "{share}: {lens:?}");
        let engine = lens.iter().sum::<usize>() as f64;
        assert!((engine - share * 100_000.0).abs() <= 32.0, "{share}: {engine}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_share_stays_between_0_and_1_whatever_is_observed(
        observations in prop::collection::vec(prop::array::uniform8(any::<u64>()), 0..60),
        threads in 0usize..1000,
    ) {
        let mut router = Router::new(RouteMode::Auto, threads);
        for [elapsed, waited, cpu_images, cpu_busy, engine_images, engine_refused, engine_busy, unsupported] in observations {
            router.observe(Observation {
                elapsed: Duration::from_nanos(elapsed),
                waited: Duration::from_nanos(waited),
                cpu_images,
                cpu_busy: Duration::from_nanos(cpu_busy),
                engine_images,
                engine_refused,
                engine_busy: Duration::from_nanos(engine_busy),
                unsupported,
            });
            prop_assert!((0.0..=1.0).contains(&router.share()), "{router:?}");
            router.route();
            prop_assert!((-1.0..=1.0).contains(&router.carried), "{router:?}");
        }
    }

    #[test]
    fn constant_rates_settle_within_50_batches(
        cpu in 1_000.0..20_000.0,
        engine in 1_000.0..20_000.0,
        consumer in 500.0..40_000.0,
        random in any::<u64>(),
    ) {
        let mut simulation = Simulation { random, noise: 0.05, ..Simulation::new(cpu, engine, consumer) };
        simulation.run(50);
        let run = simulation.run(200);
        prop_assert!(run.spread() < 0.15, "cpu {cpu} engine {engine} consumer {consumer}: {:?}", run.shares);
        let possible = consumer.min(cpu + engine);
        prop_assert!(run.rate > 0.9 * possible, "cpu {cpu} engine {engine} consumer {consumer}: {}", run.rate);
    }
}
