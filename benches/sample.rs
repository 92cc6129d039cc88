//! How long grouping takes a member, how long the order of an epoch takes a sample, and a look into the index.

use std::hint::black_box;

use brimful::sample::{
    EpochPlan, FieldSelector, Grouping, SampleIndex, SampleIndexBuilder, Shuffle, Split, group_by_key,
};
use brimful::shard::{Member, MemberKind};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// Samples of the data set: ImageNet's number, in its number of shards as webdataset cuts it.
const SAMPLES: usize = 1_281_167;
const SHARDS: usize = 147;
/// Samples of the shard that is grouped.
const GROUPED: usize = 10_000;
/// Positions of an epoch that one iteration asks for.
const POSITIONS: usize = 1000;

fn grouping(criterion: &mut Criterion) {
    let names: Vec<String> =
        (0..GROUPED).flat_map(|key| [format!("train/n{key:08}.jpg"), format!("train/n{key:08}.cls")]).collect();
    let mut group = criterion.benchmark_group("sample grouping");
    group.throughput(Throughput::Elements(names.len() as u64));
    let members: Vec<Member> = names
        .iter()
        .map(|name| Member {
            name: name.clone().into(),
            header_offset: 0,
            offset: 512,
            size: 100,
            kind: MemberKind::File,
        })
        .collect();
    group.bench_function("stream", |bencher| {
        bencher.iter(|| {
            let samples = group_by_key(members.iter().cloned().map(Ok), &Grouping::default());
            assert_eq!(samples.filter(|sample| black_box(sample).is_ok()).count(), GROUPED);
        });
    });
    group.bench_function("index", |bencher| bencher.iter(|| assert_eq!(built(&names).len(), GROUPED)));
    group.finish();
}

fn look_up(criterion: &mut Criterion) {
    let names: Vec<String> =
        (0..GROUPED).flat_map(|key| [format!("n{key:08}.jpg"), format!("n{key:08}.cls")]).collect();
    let index = built(&names);
    let selector = FieldSelector::parse("jpeg;png;jpg").unwrap();
    let mut sample = 0;
    criterion.bench_function("sample index field", |bencher| {
        bencher.iter(|| {
            sample = (sample + 7_919) % GROUPED;
            index.get(sample).field(&selector).unwrap()
        });
    });
}

fn order(criterion: &mut Criterion) {
    let shard_lens: Vec<usize> =
        (0..SHARDS).map(|shard| SAMPLES / SHARDS + usize::from(shard < SAMPLES % SHARDS)).collect();
    let shuffles =
        [("none", Shuffle::None), ("global", Shuffle::Global), ("window of 4", Shuffle::Window { shards: 4 })];
    let mut group = criterion.benchmark_group("sample order");
    for (name, shuffle) in shuffles {
        let mut epoch = 0;
        group.throughput(Throughput::Elements(1));
        group.bench_function(format!("plan, {name}"), |bencher| {
            bencher.iter(|| {
                epoch += 1;
                EpochPlan::new(&shard_lens, shuffle, 7, epoch, Split::whole()).unwrap()
            });
        });
        let plan = EpochPlan::new(&shard_lens, shuffle, 7, 0, Split::whole()).unwrap();
        let mut position = 0;
        group.throughput(Throughput::Elements(POSITIONS as u64));
        group.bench_function(format!("at, {name}"), |bencher| {
            bencher.iter(|| {
                position = (position + POSITIONS) % (SAMPLES - POSITIONS);
                (position..position + POSITIONS).map(|position| plan.at(position)).fold(0, |sum, sample| sum ^ sample)
            });
        });
    }
    group.finish();
}

fn built(names: &[String]) -> SampleIndex {
    let mut builder = SampleIndexBuilder::new(&Grouping::default());
    builder.push_shard("a.tar".into(), 0, names.iter().map(|name| (name.as_bytes(), 512, 100))).unwrap();
    builder.finish()
}

criterion_group!(benches, grouping, look_up, order);
criterion_main!(benches);
