//! The initial population of TATP: subscribers, and the rows that belong to them.
//!
//! The random choices for a subscriber come from a source of its own, derived from the seed and its number. So the
//! rows do not depend on the number of threads, and verification can draw them again.

use arrayvec::ArrayVec;
use weft::protocol::Protocol;
use weft::{Builder, Database, Failure};

use super::schema::{
    AccessInfo, CallForwarding, Number, START_TIMES, SpecialFacility, Subscriber, TYPES, number_of,
    text,
};
use super::{Ledgers, Parameters, SUBSCRIBERS_MAX, Tables, Tatp};
use crate::load::LoadInProgress;
use crate::random::Random;
use crate::workload::LoadOptions;

/// A loaded subscriber, with all rows that belong to it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Family {
    pub(super) subscriber: Subscriber,
    pub(super) access: ArrayVec<AccessInfo, { TYPES as usize }>,
    pub(super) facilities: ArrayVec<SpecialFacility, { TYPES as usize }>,
    pub(super) forwardings: ArrayVec<CallForwarding, { TYPES as usize * START_TIMES.len() }>,
}

impl Family {
    /// Draws the family of the `n`-th subscriber, counted from 0.
    fn nth(seed: u64, n: u64) -> Family {
        Family::draw(seed, n as u32 + 1)
    }

    /// Draws a family by the specification's rules for the population.
    pub(super) fn draw(seed: u64, s_id: u32) -> Family {
        let mut random = Random::new(seed, u64::from(s_id));
        let random = &mut random;
        let subscriber = Subscriber {
            s_id,
            sub_nbr: number_of(s_id),
            bit: std::array::from_fn(|_| random.within_u8(0, 1) == 1),
            hex: std::array::from_fn(|_| random.within_u8(0, 15)),
            byte2: std::array::from_fn(|_| random.within_u8(0, u8::MAX)),
            msc_location: draw_location(random),
            vlr_location: draw_location(random),
        };
        let types = some_of(random, [1, 2, 3, 4], 1);
        let access = types.into_iter().map(|ai_type| AccessInfo {
            s_id,
            ai_type,
            data1: random.within_u8(0, u8::MAX),
            data2: random.within_u8(0, u8::MAX),
            data3: draw_letters(random),
            data4: draw_letters(random),
        });
        let access = access.collect();
        let mut facilities = ArrayVec::new();
        let mut forwardings = ArrayVec::new();
        for sf_type in some_of(random, [1, 2, 3, 4], 1) {
            facilities.push(SpecialFacility {
                s_id,
                sf_type,
                is_active: random.chance(85),
                error_cntrl: random.within_u8(0, u8::MAX),
                data_a: random.within_u8(0, u8::MAX),
                data_b: draw_letters(random),
            });
            for start_time in some_of(random, START_TIMES, 0) {
                forwardings.push(CallForwarding {
                    s_id,
                    sf_type,
                    start_time,
                    end_time: start_time + random.within_u8(1, 8),
                    numberx: draw_number(random),
                });
            }
        }
        Family { subscriber, access, facilities, forwardings }
    }
}

/// Returns a random part of `all` with at least `least` elements. Each count is equally likely, and each choice of
/// this count.
fn some_of<const N: usize>(random: &mut Random, mut all: [u8; N], least: u32) -> ArrayVec<u8, N> {
    let count = random.within(least, N as u32) as usize;
    for position in 0..count {
        all.swap(position, random.within(position as u32, N as u32 - 1) as usize);
    }
    all[..count].iter().copied().collect()
}

/// Draws a location: 1 to 2^32 - 1.
#[inline]
pub(super) fn draw_location(random: &mut Random) -> u32 {
    random.within(1, u32::MAX)
}

/// Draws a random telephone number.
#[inline]
pub(super) fn draw_number(random: &mut Random) -> Number {
    text(std::array::from_fn(|_| b'0' + random.within_u8(0, 9)))
}

/// Draws random capital letters.
fn draw_letters<const N: usize>(random: &mut Random) -> arrayvec::ArrayString<N> {
    text(std::array::from_fn(|_| random.within_u8(b'A', b'Z')))
}

/// Adds the tables.
///
/// # Panics
/// The number of subscribers is out of its range.
pub(super) fn declare<P: Protocol>(parameters: &Parameters, builder: Builder<P>) -> Builder<P> {
    let subscribers = parameters.subscribers;
    assert!((1..=SUBSCRIBERS_MAX).contains(&subscribers), "{subscribers} subscribers");
    let per_subscriber = |tenths: usize| subscribers as usize * tenths / 10;
    builder
        .table_with_capacity::<Subscriber>(per_subscriber(10))
        .table_with_capacity::<AccessInfo>(per_subscriber(25))
        .table_with_capacity::<SpecialFacility>(per_subscriber(25))
        .table_with_capacity::<CallForwarding>(per_subscriber(38))
}

/// Fills the tables.
pub(super) fn fill<P: Protocol>(
    database: Database<P>,
    parameters: &Parameters,
    options: &LoadOptions<'_>,
) -> Result<Tatp<P>, Failure> {
    let subscribers = parameters.subscribers;
    let per_subscriber = |tenths: u64| u64::from(subscribers) * tenths / 10;
    let tables = Tables {
        subscriber: database.table()?,
        access_info: database.table()?,
        special_facility: database.table()?,
        call_forwarding: database.table()?,
    };
    let mut loading = LoadInProgress::new(options, per_subscriber(10 + 25 + 25 + 38));
    let all = (&options.seed, subscribers.into());
    loading
        .fill(&database, &tables.subscriber, all, |&seed, n| [Family::nth(seed, n).subscriber])?;
    loading.fill(&database, &tables.access_info, all, |&seed, n| Family::nth(seed, n).access)?;
    let facilities = |&seed: &u64, n| Family::nth(seed, n).facilities;
    loading.fill(&database, &tables.special_facility, all, facilities)?;
    let forwardings = |&seed: &u64, n| Family::nth(seed, n).forwardings;
    loading.fill(&database, &tables.call_forwarding, all, forwardings)?;
    loading.finish();
    Ok(Tatp {
        database,
        tables,
        parameters: *parameters,
        seed: options.seed,
        ledgers: Ledgers::default(),
    })
}
