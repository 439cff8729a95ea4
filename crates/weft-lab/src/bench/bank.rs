//! `cargo lab bench bank`: the options and the help of the bank.

use std::io;

use clap::Args;
use weft_protocols::with_protocol;
use weft_workloads::LoadOptions;
use weft_workloads::bank::{Bank, Parameters};
use weft_workloads::snapshots::Snapshots;

use weft_bench::arguments::BenchArguments;
use weft_bench::numbers;
use weft_bench::stop::Stop;
use weft_options::bank::BankOptions;

use weft_bench::harness::contender::{Benchmark, Contender, Variant, load_under};
use weft_bench::harness::tally::SAMPLE_OF_SMALL;
use weft_bench::harness::{self, Subject};

/// Approximate bytes of one account: the record, its entry in the B+-tree, and a second version if it was written.
const ACCOUNT_BYTES: u64 = 180;

const HELP: &str = "\
What is measured: transfers between the accounts of a bank, and audits. Each thread runs one
transaction after the other:
  transfer  reads the balance of an account, which must not become negative, takes an amount from it,
            and adds it to another account by an operation that commutes
  audit     reads all accounts, and adds up their balances
--hot percent of the transfers have the one hot account on one side, in half of them as the one that
pays. A transfer that an account cannot pay is under `rolled back`. An audit is long, and each
transfer changes what it reads: it shows how a protocol treats long transactions among short ones.
The latency of one transaction in 31 is measured.

Examples:
  cargo lab bench bank --protocol dbx,silo,2pl --threads 2
      a thousand accounts, half of the transfers with the hot one, one audit in a hundred
  cargo lab bench bank --hot 100 --audits 0 --threads 2 --verify
      only the hot account; checks afterwards that no money was lost
  cargo lab bench bank --accounts 100000 --audits 10 --threads 2 --json results.json
      long audits; writes all numbers as JSON

`cargo lab protocols` describes each protocol and its source.
Exit code: 0 success; 1 the engine failed or a verified condition does not hold; 2 wrong arguments.";

/// Measure a bank: transfers, many of them to or from one hot account, and audits of all accounts
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct BankArguments {
    #[command(flatten)]
    options: BankOptions,

    #[command(flatten)]
    bench: BenchArguments,
}

/// The bank, for any protocol.
struct BankBenchmark(Parameters);

impl Benchmark for BankBenchmark {
    fn load(
        &self,
        variant: &Variant,
        options: &LoadOptions<'_>,
    ) -> Result<Box<dyn Contender>, Stop> {
        with_protocol!(variant.protocol(), |P| load_under::<P, Bank<P>, SAMPLE_OF_SMALL>(
            &self.0, options
        ))
        .expect("the parser accepts only names of the list")
    }
}

/// Runs the command.
///
/// # Errors
/// See [`harness::run`].
pub fn run(arguments: &BankArguments) -> Result<(), Stop> {
    let parameters = arguments.options.parameters();
    let Parameters { accounts, hot_percent, audit_percent } = parameters;
    let subject = Subject {
        title: format!(
            "Bank, {}, {hot_percent} % of the transfers with the hot one, {audit_percent} % audit",
            numbers::counted(accounts, "account"),
        ),
        options: vec![
            ("accounts", accounts.into()),
            ("hot_percent", hot_percent.into()),
            ("audit_percent", audit_percent.into()),
        ],
        operations: None,
        success_rates: None,
        is_single_key: false,
        snapshots: vec![Snapshots::Off],
        loaded_bytes: accounts * ACCOUNT_BYTES,
        growth_bytes_per_second: 0,
    };
    harness::run(&arguments.bench, &BankBenchmark(parameters), subject, &mut io::stdout())
}
