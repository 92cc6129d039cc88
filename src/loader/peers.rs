//! The samples of the same epoch around one: which are read ahead of it, and which may stand in where it is bad. It
//! knows numbers only.

use std::sync::Arc;

use crate::sample::EpochPlan;
use crate::transform::SampleRng;

/// What is known of the order around a sample.
#[derive(Debug, Clone)]
pub(crate) enum Peers {
    /// All of it.
    Plan(Arc<EpochPlan>),
    /// The numbers of its batch, as the caller gave them, and those that may stand in.
    Given { numbers: Arc<[usize]>, stand_ins: Arc<[usize]> },
    /// Nothing: a stream, or a sample by itself.
    None,
}

impl Peers {
    /// The numbers to ask storage for when the sample at `position` of the epoch, in `row` of its batch, is read:
    /// `window` samples ahead, each asked for once.
    pub(crate) fn ahead(&self, position: usize, row: usize, window: usize) -> impl Iterator<Item = usize> + '_ {
        let (at, len) = match self {
            Self::Plan(plan) => (position, plan.len()),
            Self::Given { numbers, .. } => (row, numbers.len()),
            Self::None => (0, 0),
        };
        let first = if at == 0 { 0 } else { at + window };
        (first..(at + window + 1).min(len)).filter_map(|place| self.at(place))
    }

    /// The number of the sample at `position` of the epoch, in `row` of its batch.
    pub(crate) fn number(&self, position: usize, row: usize) -> Option<usize> {
        match self {
            Self::Plan(plan) => plan.get(position),
            Self::Given { numbers, .. } => numbers.get(row).copied(),
            Self::None => None,
        }
    }

    /// A number in the place of a bad one, where there is any, of a data set of `samples`.
    pub(crate) fn stand_in(&self, samples: usize, rng: &mut SampleRng) -> Option<usize> {
        let mut below = |len: usize| rng.below(u32::try_from(len).unwrap_or(u32::MAX)) as usize;
        match self {
            Self::Plan(_) => Some(below(samples)),
            Self::Given { stand_ins, .. } if !stand_ins.is_empty() => stand_ins.get(below(stand_ins.len())).copied(),
            Self::Given { .. } | Self::None => None,
        }
    }

    /// Samples of the epoch, where that is known.
    pub(crate) fn samples(&self) -> Option<u64> {
        match self {
            Self::Plan(plan) => Some(plan.len() as u64),
            Self::Given { .. } | Self::None => None,
        }
    }

    fn at(&self, place: usize) -> Option<usize> {
        match self {
            Self::Plan(plan) => Some(plan.at(place)),
            Self::Given { numbers, .. } => numbers.get(place).copied(),
            Self::None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sample_of_a_batch_is_asked_for_once_and_ahead() {
        let numbers: Arc<[usize]> = (100..110).collect();
        let peers = Peers::Given { numbers: Arc::clone(&numbers), stand_ins: numbers };
        let asked: Vec<usize> = (0..10).flat_map(|row| peers.ahead(50 + row, row, 3).collect::<Vec<_>>()).collect();
        assert_eq!(asked, (100..110).collect::<Vec<_>>());
    }

    #[test]
    fn what_stands_in_is_drawn_from_the_order() {
        let stand_ins: Arc<[usize]> = [3, 7, 9].into();
        let peers = Peers::Given { numbers: [3].into(), stand_ins: Arc::clone(&stand_ins) };
        for sample in 0..20 {
            let number = peers.stand_in(100, &mut SampleRng::new(1, 0, sample)).unwrap();
            assert!(stand_ins.contains(&number));
        }
        assert_eq!(Peers::None.stand_in(100, &mut SampleRng::new(1, 0, 0)), None);
    }
}
