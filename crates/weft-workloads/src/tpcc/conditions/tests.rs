//! Each rule can fail: the test damages one row, and exactly the rules about this row must report it.

use weft::protocol::Dbx;
use weft::{Error, Transaction};

use super::survey::{compare_names, compare_orders_of};
use super::{Findings, Rule};
use crate::tpcc::schema::{NewOrderRow, Order, OrderLine, Timestamp};
use crate::tpcc::tests::load;
use crate::tpcc::{Parameters, Scale, Tables, Tpcc};
use crate::workload::Workload;

const SEED: u64 = 3;

/// Returns a small database on which all kinds of transactions have been run.
fn database() -> Tpcc<Dbx> {
    let parameters = Parameters { warehouses: 2, scale: Scale::TINY, ..Parameters::default() };
    let tpcc: Tpcc<Dbx> = load(parameters, SEED, 1);
    let mut client = tpcc.client(SEED, 0, 1);
    for _ in 0..400 {
        tpcc.execute(&mut client).expect("a transaction runs to its end");
    }
    tpcc
}

/// Returns the rules that do not hold.
fn broken_rules(tpcc: &Tpcc<Dbx>) -> Vec<Rule> {
    let conditions = tpcc.verify(&|_, _| {}).expect("verification reads every row");
    for (condition, rule) in conditions.iter().zip(Rule::ALL) {
        assert_eq!(condition.name, rule.name());
        assert!(condition.checked > 0, "{condition}");
        assert_eq!(condition.holds, condition.detail.is_none(), "{condition}");
    }
    Rule::ALL.into_iter().zip(conditions).filter(|(_, c)| !c.holds).map(|(rule, _)| rule).collect()
}

type Change = fn(&Tables, &Transaction<'_, Dbx>) -> Result<(), Error>;

/// Runs the transactions, then changes one row without the clients, and compares the rules that break.
fn assert_breaks(expected: &[Rule], change: Change) {
    let tpcc = database();
    assert_eq!(broken_rules(&tpcc), [], "before the change");
    tpcc.database.transact(|tx| change(&tpcc.tables, tx)).expect("the change commits");
    assert_eq!(broken_rules(&tpcc), expected);
}

fn last_order(tables: &Tables, tx: &Transaction<'_, Dbx>) -> Result<Order, Error> {
    let orders = tx.prefix(&tables.order, &(1, 1));
    orders.descending().next().expect("district 1 has orders").cloned()
}

/// Changes the first line of order 1 of district 1, which the load delivered.
fn change_delivered_line(
    tables: &Tables,
    tx: &Transaction<'_, Dbx>,
    change: impl FnMut(&mut OrderLine),
) -> Result<(), Error> {
    tx.update(&tables.order_line, &(1, 1, 1, 1), change).map(|found| found.expect("line 1"))
}

#[test]
fn sum_of_the_warehouse() {
    assert_breaks(&[Rule::Condition1, Rule::Condition8], |tables, tx| {
        tx.update(&tables.warehouse, &1, |row| row.w_ytd += 1).map(drop)
    });
}

#[test]
fn sum_of_the_district() {
    assert_breaks(&[Rule::Condition1, Rule::Condition9], |tables, tx| {
        tx.update(&tables.district, &(1, 3), |row| row.d_ytd -= 1).map(drop)
    });
}

#[test]
fn payment_without_history() {
    assert_breaks(&[Rule::Condition8, Rule::Condition9], |tables, tx| {
        tx.update(&tables.warehouse, &2, |row| row.w_ytd += 1)?;
        tx.update(&tables.district, &(2, 10), |row| row.d_ytd += 1).map(drop)
    });
}

#[test]
fn order_number_without_order() {
    assert_breaks(&[Rule::Condition2, Rule::OrdersCounted], |tables, tx| {
        tx.update(&tables.district, &(1, 1), |row| row.d_next_o_id += 1).map(drop)
    });
}

#[test]
fn gap_in_the_new_orders() {
    assert_breaks(&[Rule::Condition3, Rule::Condition5, Rule::Condition11], |tables, tx| {
        let second = tx.prefix(&tables.new_order, &(1, 1)).nth(1).expect("two new orders")?;
        assert!(tx.delete(&tables.new_order, &(1, 1, second.no_o_id))?);
        Ok(())
    });
}

#[test]
fn last_new_order_missing() {
    assert_breaks(&[Rule::Condition2, Rule::Condition5, Rule::Condition11], |tables, tx| {
        let last = last_order(tables, tx)?;
        assert!(tx.delete(&tables.new_order, &(1, 1, last.o_id))?);
        Ok(())
    });
}

#[test]
fn new_order_without_order() {
    assert_breaks(&[Rule::Condition2, Rule::Condition11, Rule::References], |tables, tx| {
        let no_o_id = last_order(tables, tx)?.o_id + 1;
        tx.insert(&tables.new_order, NewOrderRow { no_w_id: 1, no_d_id: 1, no_o_id })
    });
}

#[test]
fn line_missing() {
    assert_breaks(&[Rule::Condition4, Rule::Condition6], |tables, tx| {
        assert!(tx.delete(&tables.order_line, &(1, 1, 1, 1))?);
        Ok(())
    });
}

#[test]
fn number_of_lines() {
    assert_breaks(&[Rule::Condition4, Rule::Condition6], |tables, tx| {
        tx.update(&tables.order, &(1, 1, 1), |row| row.o_ol_cnt += 1).map(drop)
    });
}

#[test]
fn carrier_missing() {
    assert_breaks(&[Rule::Condition5, Rule::Condition7], |tables, tx| {
        tx.update(&tables.order, &(1, 1, 1), |row| row.o_carrier_id = None).map(drop)
    });
}

#[test]
fn delivery_date_missing() {
    assert_breaks(&[Rule::Condition7], |tables, tx| {
        change_delivered_line(tables, tx, |line| line.ol_delivery_d = None)
    });
}

#[test]
fn amount_of_a_delivered_line() {
    assert_breaks(&[Rule::Condition10, Rule::Condition12], |tables, tx| {
        change_delivered_line(tables, tx, |line| line.ol_amount += 1)
    });
}

#[test]
fn line_of_an_unknown_item() {
    assert_breaks(&[Rule::References], |tables, tx| {
        change_delivered_line(tables, tx, |line| line.ol_i_id = 0)
    });
}

#[test]
fn amount_in_history() {
    assert_breaks(&[Rule::Condition8, Rule::Condition9, Rule::Condition10], |tables, tx| {
        tx.update(&tables.history, &(1, 1), |row| row.h_amount += 1).map(drop)
    });
}

#[test]
fn history_missing() {
    let expected = [Rule::Condition8, Rule::Condition9, Rule::Condition10, Rule::PaymentsCounted];
    assert_breaks(&expected, |tables, tx| {
        assert!(tx.delete(&tables.history, &(2, 2))?);
        Ok(())
    });
}

#[test]
fn history_of_another_customer() {
    assert_breaks(&[Rule::Condition10, Rule::PaymentsCounted], |tables, tx| {
        tx.update(&tables.history, &(1, 1), |row| row.h_c_id += 1).map(drop)
    });
}

#[test]
fn history_of_nobody() {
    let expected = [
        Rule::Condition8,
        Rule::Condition9,
        Rule::Condition10,
        Rule::PaymentsCounted,
        Rule::References,
    ];
    assert_breaks(&expected, |tables, tx| {
        tx.update(&tables.history, &(1, 1), |row| row.h_c_id = 0).map(drop)
    });
}

#[test]
fn balance() {
    assert_breaks(&[Rule::Condition10, Rule::Condition12], |tables, tx| {
        tx.update(&tables.customer, &(2, 5, 7), |row| row.c_balance += 1).map(drop)
    });
}

#[test]
fn payments_to_date() {
    assert_breaks(&[Rule::Condition12], |tables, tx| {
        tx.update(&tables.customer, &(2, 5, 7), |row| row.c_ytd_payment += 1).map(drop)
    });
}

#[test]
fn number_of_payments() {
    assert_breaks(&[Rule::PaymentsCounted], |tables, tx| {
        tx.update(&tables.customer, &(2, 5, 7), |row| row.c_payment_cnt += 1).map(drop)
    });
}

#[test]
fn number_of_deliveries() {
    assert_breaks(&[Rule::Condition11], |tables, tx| {
        tx.update(&tables.customer, &(2, 5, 7), |row| row.c_delivery_cnt += 1).map(drop)
    });
}

/// As after a rollback that missed one row.
#[test]
fn order_that_leaked() {
    let expected = [Rule::Condition2, Rule::Condition5, Rule::Condition11, Rule::OrdersCounted];
    assert_breaks(&expected, |tables, tx| {
        let last = last_order(tables, tx)?;
        let leaked = Order {
            o_id: last.o_id + 1,
            o_c_id: 1,
            o_entry_d: Timestamp::from_micros(1),
            o_carrier_id: None,
            o_ol_cnt: 0,
            ..last
        };
        tx.insert(&tables.order, leaked)
    });
}

#[test]
fn order_missing() {
    let expected = [Rule::Condition4, Rule::Condition11, Rule::OrdersCounted, Rule::References];
    assert_breaks(&expected, |tables, tx| {
        assert!(tx.delete(&tables.order, &(1, 1, 1))?);
        Ok(())
    });
}

#[test]
fn counters_of_stock() {
    assert_breaks(&[Rule::StockCounted], |tables, tx| {
        tx.update(&tables.stock, &(1, 1), |row| row.s_ytd += 1).map(drop)
    });
    assert_breaks(&[Rule::StockCounted], |tables, tx| {
        tx.update(&tables.stock, &(2, 200), |row| row.s_order_cnt += 1).map(drop)
    });
    assert_breaks(&[Rule::StockCounted], |tables, tx| {
        tx.update(&tables.stock, &(2, 17), |row| row.s_remote_cnt += 1).map(drop)
    });
}

#[test]
fn stock_missing() {
    assert_breaks(&[Rule::References], |tables, tx| {
        assert!(tx.delete(&tables.stock, &(1, 9))?);
        Ok(())
    });
}

#[test]
fn customer_missing() {
    assert_breaks(&[Rule::References, Rule::Indexes], |tables, tx| {
        for c_id in 1..=Scale::TINY.customers_per_district {
            let customer = tx.get(&tables.customer, &(1, 1, c_id))?.expect("a customer");
            if customer.c_delivery_cnt == 0 {
                assert!(tx.delete(&tables.customer, &(1, 1, c_id))?);
                return Ok(());
            }
        }
        panic!("every customer has had a delivery");
    });
}

#[test]
fn warehouse_missing() {
    assert_breaks(&[Rule::Condition1, Rule::Condition8, Rule::References], |tables, tx| {
        assert!(tx.delete(&tables.warehouse, &2)?);
        Ok(())
    });
}

/// A test cannot damage an index without its table. So this compares wrong results of an index.
#[test]
fn index_out_of_step() {
    let breaks = |compare: fn(&mut Findings)| {
        let mut findings = Findings::default();
        compare(&mut findings);
        let finding = &findings.0[Rule::Indexes as usize];
        assert_eq!(finding.checked, 2);
        finding.violation.is_some()
    };
    assert!(!breaks(|findings| compare_names(findings, (1, 1), &["ABLE", "BAR"], 2)));
    assert!(breaks(|findings| compare_names(findings, (1, 1), &["ABLE", "BAR"], 3)));
    assert!(breaks(|findings| compare_names(findings, (1, 1), &["BAR", "ABLE"], 2)));
    assert!(!breaks(|findings| compare_orders_of(findings, (1, 1, 1), &[4, 7], 2)));
    assert!(breaks(|findings| compare_orders_of(findings, (1, 1, 1), &[4, 7], 1)));
    assert!(breaks(|findings| compare_orders_of(findings, (1, 1, 1), &[7, 7], 2)));
}

#[test]
fn a_violation_is_told_with_both_sides() {
    let tpcc = database();
    let change = tpcc.database.transact(|tx| {
        tx.update(&tpcc.tables.customer, &(2, 5, 7), |row| row.c_payment_cnt = 1_234)
    });
    change.expect("the change commits");
    let conditions = tpcc.verify(&|_, _| {}).expect("verification reads every row");
    let detail = conditions[Rule::PaymentsCounted as usize].detail.as_ref().expect("a violation");
    assert!(
        detail.starts_with("customer (2, 5, 7): C_PAYMENT_CNT is 1234, count(HISTORY) is "),
        "{detail}"
    );
}
