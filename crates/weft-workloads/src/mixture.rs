//! All workloads in one database at once.
//!
//! Each transaction is one of another workload, drawn by fixed shares ([`SHARES`]). The workloads share the database,
//! its protocol, its workers and its log, and no tables. So a protocol that treats records by what it has seen of
//! them has every kind of record before it at the same time: hot counters, popular pages, stocks, queues, and rows
//! that are hardly ever written twice. A transaction type of this workload is a whole workload.

use weft::protocol::Protocol;
use weft::{Builder, Database, Failure};

use crate::articles::{self, Articles};
use crate::bank::{self, Bank};
use crate::flash_sale::{self, FlashSale};
use crate::incr::{self, Incr};
use crate::like::{self, Like};
use crate::mix::{Mix, Transactions};
use crate::queue::{self, Queue};
use crate::random::Random;
use crate::rubis::{self, Rubis};
use crate::tatp::{self, Tatp};
use crate::tpcc::{self, Tpcc};
use crate::workload::{Condition, LoadOptions, Outcome, Procedures, Progress, Workload};
use crate::ycsb::row::{FixedRow, HashIndex};
use crate::ycsb::{self, Ycsb};

#[cfg(test)]
mod tests;

/// YCSB's rows: of a hundred bytes, in a hash table.
type Row = FixedRow<92, HashIndex>;

/// The first client's stream of random numbers.
const FIRST_STREAM: u64 = 5 << 40;

/// Defines the parts of the mixture: for each its module, its type, and its share in percent.
macro_rules! mixture {
    ($($field:ident: $workload:ty, $share:literal;)*) => {
        /// The workloads, in the order of [`SHARES`].
        #[expect(non_camel_case_types, reason = "they are the names of the fields")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Part {
            $($field),*
        }

        const PARTS: usize = SHARES.len();

        /// The share of each workload's transactions, in percent.
        pub const SHARES: [u32; [$(stringify!($field)),*].len()] = [$($share),*];

        impl Transactions<PARTS> for Part {
            const BENCHMARK: &'static str = "the mixture";
            const ALL: [Self; PARTS] = [$(Part::$field),*];
            const NAMES: [&'static str; PARTS] = {
                type P = weft::protocol::Dbx;
                [$(<$workload as Workload<P>>::NAME),*]
            };
            const STANDARD: [u32; PARTS] = SHARES;

            fn position(self) -> usize {
                self as usize
            }
        }

        /// The parameters of each workload.
        #[derive(Clone, Debug)]
        pub struct Parameters {
            $(
                #[doc = concat!("Those of `", stringify!($field), "`.")]
                pub $field: $field::Parameters,
            )*
        }

        /// The clients of one thread: one of each workload.
        pub struct Client<P: Protocol> {
            random: Random,
            $($field: <$workload as Workload<P>>::Client,)*
        }

        /// A loaded mixture.
        pub struct Mixture<P: Protocol> {
            database: Database<P>,
            $($field: $workload,)*
        }

        impl<P: Protocol> Workload<P> for Mixture<P> {
            const NAME: &'static str = "mixture";
            const TRANSACTIONS: &'static [&'static str] = &Part::NAMES;
            type Parameters = Parameters;
            type Client = Client<P>;

            fn procedures(parameters: &Parameters) -> Procedures {
                let mut all = Procedures::default();
                $(
                    let of_part = <$workload as Workload<P>>::procedures(&parameters.$field);
                    all.shapes.extend(of_part.shapes);
                    all.tokens.extend(of_part.tokens);
                )*
                all
            }

            fn declare(parameters: &Parameters, builder: Builder<P>) -> Builder<P> {
                $(
                    let builder =
                        <$workload as Workload<P>>::declare(&parameters.$field, builder);
                )*
                builder
            }

            fn fill(
                database: Database<P>,
                parameters: &Parameters,
                options: &LoadOptions<'_>,
            ) -> Result<Self, Failure> {
                Ok(Mixture {
                    $($field: Workload::fill(database.clone(), &parameters.$field, options)?,)*
                    database,
                })
            }

            fn database(&self) -> &Database<P> {
                &self.database
            }

            fn client(&self, seed: u64, thread: usize, threads: usize) -> Client<P> {
                Client {
                    random: Random::new(seed, FIRST_STREAM + thread as u64),
                    $($field: self.$field.client(seed, thread, threads),)*
                }
            }

            #[inline]
            fn execute(&self, client: &mut Client<P>) -> Result<Outcome, Failure> {
                let part: Part = Mix::STANDARD.draw(&mut client.random);
                let outcome = match part {
                    $(Part::$field => self.$field.execute(&mut client.$field)?,)*
                };
                Ok(Outcome { transaction: part.position(), ..outcome })
            }

            fn finish(&self, client: &mut Client<P>) -> Result<(), Failure> {
                $(self.$field.finish(&mut client.$field)?;)*
                Ok(())
            }

            fn verify(&self, progress: Progress<'_>) -> Result<Vec<Condition>, Failure> {
                let mut all = Vec::new();
                $(
                    for condition in self.$field.verify(progress)? {
                        let name = format!("{}: {}", Part::NAMES[Part::$field.position()], condition.name);
                        all.push(Condition { name, ..condition });
                    }
                )*
                Ok(all)
            }
        }
    };
}

mixture! {
    tpcc: Tpcc<P>, 10;
    ycsb: Ycsb<P, Row>, 15;
    incr: Incr<P>, 10;
    like: Like<P>, 10;
    rubis: Rubis<P>, 10;
    tatp: Tatp<P>, 15;
    articles: Articles<P>, 10;
    flash_sale: FlashSale<P>, 10;
    queue: Queue<P>, 5;
    bank: Bank<P>, 5;
}

const _: () = {
    let (mut sum, mut position) = (0, 0);
    while position < PARTS {
        sum += SHARES[position];
        position += 1;
    }
    assert!(sum == 100, "the shares are percentages");
};

/// The sizes of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// The sizes at which each workload is measured alone, or a tenth of them if those are in the millions.
    Full,
    /// As few rows as possible.
    Tiny,
}

impl Parameters {
    /// Returns the parameters with tables of these sizes, and with the skew that each workload has by default.
    pub fn new(scale: Scale) -> Parameters {
        let of = |full: u64, tiny: u64| if scale == Scale::Full { full } else { tiny };
        Parameters {
            tpcc: tpcc::Parameters {
                scale: match scale {
                    Scale::Full => tpcc::Scale::SPECIFICATION,
                    Scale::Tiny => tpcc::Scale::TINY,
                },
                ..tpcc::Parameters::default()
            },
            ycsb: ycsb::Parameters {
                records: of(100_000, 1_000),
                theta: 0.99,
                ..ycsb::Parameters::default()
            },
            incr: incr::Parameters {
                records: of(100_000, 1_000),
                popularity: incr::Popularity::Hot { percent: 50.0, change: None },
            },
            like: like::Parameters {
                users: of(100_000, 1_000),
                pages: of(100_000, 1_000),
                ..like::Parameters::default()
            },
            rubis: rubis::Parameters {
                users: of(100_000, 100) as u32,
                items: of(10_000, 30) as u32,
                ..rubis::Parameters::default()
            },
            tatp: tatp::Parameters {
                subscribers: of(80_000, 1_000) as u32,
                ..tatp::Parameters::default()
            },
            articles: articles::Parameters {
                articles: of(10_000, 100),
                ..articles::Parameters::default()
            },
            flash_sale: flash_sale::Parameters {
                items: of(10_000, 20),
                buyers: of(100_000, 100),
                ..flash_sale::Parameters::default()
            },
            queue: queue::Parameters { backlog: of(1_000, 100) },
            bank: bank::Parameters { accounts: of(1_000, 50), ..bank::Parameters::default() },
        }
    }
}
