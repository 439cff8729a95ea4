//! The layout of a procedure's picture: the steps one below the other in the order in which they run, indented by
//! loops, with the arrows in lanes beside them.
//!
//! ```text
//!                +----------+
//!      .-------- | 0  read  | -.
//!      |         +----------+  ¦      left: keys; right: values and branches
//!      |         +----------+  ¦
//!      |         | 1  read  |  ¦
//!      |         +----------+  ¦
//!      '-------> | 2 update | <'
//! ```
//!
//! No two arrows that pass the same step share a lane. Each arrow gets the nearest free lane, short arrows first,
//! so that short arrows are nearest to the steps.

/// The kind of a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Key,
    Value,
    Guard,
}

/// An arrow from a step to one that depends on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrow {
    pub from: usize,
    pub to: usize,
    pub kind: Kind,
    pub is_carried: bool,
    /// The lane, counted from the steps outwards.
    pub lane: usize,
}

impl Arrow {
    fn rows(&self) -> (usize, usize) {
        (self.from.min(self.to), self.from.max(self.to))
    }

    fn meets(&self, other: &Arrow) -> bool {
        let ((first, last), (other_first, other_last)) = (self.rows(), other.rows());
        first <= other_last && other_first <= last
    }
}

/// Assigns a lane to each arrow. Keys that lead to the same step may share a lane: they are one line with several
/// beginnings. Value and guard arrows do not share one, because overlapping dashed lines would look solid.
pub fn lanes(arrows: &mut [Arrow]) {
    arrows.sort_by_key(|arrow| (arrow.rows().1 - arrow.rows().0, arrow.kind, arrow.to, arrow.from));
    for position in 0..arrows.len() {
        let (before, rest) = arrows.split_at_mut(position);
        let arrow = &mut rest[0];
        let is_free = |lane: usize| {
            before.iter().all(|other| {
                let is_one =
                    other.to == arrow.to && (other.kind, arrow.kind) == (Kind::Key, Kind::Key);
                other.lane != lane || is_one || !other.meets(arrow)
            })
        };
        arrow.lane = (0..).find(|&lane| is_free(lane)).expect("lanes are unlimited");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrow(from: usize, to: usize, kind: Kind) -> Arrow {
        Arrow { from, to, kind, is_carried: false, lane: usize::MAX }
    }

    #[test]
    fn arrows_that_pass_the_same_step_have_lanes_of_their_own() {
        let mut arrows =
            vec![arrow(0, 5, Kind::Key), arrow(1, 2, Kind::Key), arrow(2, 4, Kind::Value)];
        lanes(&mut arrows);
        for (position, one) in arrows.iter().enumerate() {
            for other in &arrows[position + 1..] {
                assert!(!one.meets(other) || one.lane != other.lane, "{one:?} {other:?}");
            }
        }
        assert_eq!((arrows[0].to, arrows[0].lane), (2, 0), "the shortest is the nearest");
    }

    #[test]
    fn keys_of_the_same_step_are_one_line() {
        for (kind, are_one) in [(Kind::Key, true), (Kind::Value, false), (Kind::Guard, false)] {
            let mut arrows = vec![arrow(0, 3, kind), arrow(1, 3, kind)];
            lanes(&mut arrows);
            assert_eq!(arrows[0].lane == arrows[1].lane, are_one, "{kind:?}");
        }
    }
}
