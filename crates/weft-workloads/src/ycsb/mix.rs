//! The kinds of operations, and how often each is drawn.

use std::fmt;

use fastrand::Rng;

/// The kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads a row, and the whole of its value.
    Read,
    /// Reads a row, modifies part of it, and writes it.
    ReadModifyWrite,
    /// Inserts a row under a fresh key.
    Insert,
    /// Reads some rows in the order of their keys.
    Scan,
}

impl Kind {
    /// Every kind, in order.
    pub const ALL: [Kind; 4] = [Kind::Read, Kind::ReadModifyWrite, Kind::Insert, Kind::Scan];

    /// The names, in the same order.
    pub const NAMES: [&'static str; 4] = ["read", "rmw", "insert", "scan"];
}

/// The share of each kind, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    shares: [u8; 4],
}

impl Mix {
    /// 80 % reads and 20 % read-modify-writes, the mix of the DBX and Silo papers.
    pub const DBX: Mix = Mix { shares: [80, 20, 0, 0] };

    /// Returns a mix with only one kind of operation.
    pub const fn only(kind: Kind) -> Mix {
        let mut shares = [0; 4];
        shares[kind as usize] = 100;
        Mix { shares }
    }

    /// Creates a mix from the shares in the order of [`Kind::ALL`]. Returns `None` if they do not add up to 100.
    pub fn new(shares: [u8; 4]) -> Option<Mix> {
        let total: u32 = shares.iter().map(|&share| u32::from(share)).sum();
        (total == 100).then_some(Mix { shares })
    }

    /// Returns the share of a kind, in percent.
    pub const fn share(&self, kind: Kind) -> u8 {
        self.shares[kind as usize]
    }

    /// Draws a kind.
    pub(super) fn draw(&self, random: &mut Rng) -> Kind {
        let mut ticket = random.u8(0..100);
        for kind in Kind::ALL {
            match ticket.checked_sub(self.share(kind)) {
                None => return kind,
                Some(rest) => ticket = rest,
            }
        }
        unreachable!("the shares add up to 100: {self:?}")
    }
}

/// For example `read 80 %, rmw 20 %`.
impl fmt::Display for Mix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (share, name) in self.shares.iter().zip(Kind::NAMES).filter(|(share, _)| **share > 0) {
            write!(formatter, "{separator}{name} {share} %")?;
            separator = ", ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_drawn_by_their_shares() {
        let mix = Mix::new([50, 0, 20, 30]).expect("100 in all");
        let mut random = Rng::with_seed(1);
        let mut drawn = [0; 4];
        (0..100_000).for_each(|_| drawn[mix.draw(&mut random) as usize] += 1);
        for (kind, count) in Kind::ALL.into_iter().zip(drawn) {
            let expected = i32::from(mix.share(kind)) * 1_000;
            assert!((count - expected).abs() <= expected / 30, "{kind:?}: {drawn:?}");
        }
        assert_eq!(mix.to_string(), "read 50 %, insert 20 %, scan 30 %");
    }

    #[test]
    fn shares_that_are_not_100_are_refused() {
        assert_eq!(Mix::new([80, 20, 0, 1]), None);
        assert_eq!(Mix::new([99, 0, 0, 0]), None);
        assert_eq!(Mix::new([200, 56, 0, 100]), None, "no wrapping around");
        assert_eq!(Mix::new([80, 20, 0, 0]), Some(Mix::DBX));
        assert_eq!(Mix::new([0, 0, 0, 100]), Some(Mix::only(Kind::Scan)));
    }
}
