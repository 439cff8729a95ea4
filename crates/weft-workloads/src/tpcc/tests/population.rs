//! The rows after the load (clause 4.3.3.1).

use weft::htm::word::Mutex;
use weft::protocol::Dbx;

use super::model::Model;
use super::{assert_consistent, load};
use crate::tpcc::random::{LAST_NAMES, is_original, last_name};
use crate::tpcc::schema::BAD_CREDIT;
use crate::tpcc::{Parameters, Scale, Tpcc};
use crate::workload::{LoadOptions, Workload};

fn tiny(warehouses: u16) -> Parameters {
    Parameters { warehouses, scale: Scale::TINY, ..Parameters::default() }
}

#[test]
fn the_seed_alone_decides_the_rows() {
    let model = |seed, threads| {
        let mut model = Model::read(&load::<Dbx>(tiny(2), seed, threads));
        model.forget_dates();
        model
    };
    let expected = model(1, 1);
    assert!(model(1, 2) == expected, "the number of threads changed the rows");
    assert!(model(2, 1) != expected, "the seed changed nothing");
}

#[test]
fn progress_goes_from_nothing_to_everything() {
    let reports = Mutex::new(Vec::new());
    let progress = |done, total| reports.lock().unwrap().push((done, total));
    let options = LoadOptions { progress: &progress, ..LoadOptions::default() };
    let tpcc = Tpcc::<Dbx>::load(&tiny(1), &options).expect("loads");
    let check = |reports: Vec<(u64, u64)>| {
        assert!(reports.len() > 1);
        let total = reports[0].1;
        assert!(reports.iter().all(|report| report.1 == total && report.0 <= total));
        assert!(reports.is_sorted(), "{reports:?}");
        assert_eq!(reports.last(), Some(&(total, total)));
    };
    check(std::mem::take(&mut reports.lock().unwrap()));
    tpcc.verify(&progress).expect("verification reads every row");
    check(std::mem::take(&mut reports.lock().unwrap()));
}

#[test]
fn one_warehouse_of_the_specification() {
    let tpcc: Tpcc<Dbx> = load(Parameters::default(), 1, 2);
    assert_consistent(&tpcc, "after the load");
    let model = Model::read(&tpcc);
    assert_eq!(model.warehouse.len(), 1);
    assert_eq!(model.district.len(), 10);
    assert_eq!(model.customer.len(), 30_000);
    assert_eq!(model.history.len(), 30_000);
    assert_eq!(model.order.len(), 30_000);
    assert_eq!(model.new_order.len(), 9_000);
    assert_eq!(model.item.len(), 100_000);
    assert_eq!(model.stock.len(), 100_000);
    let lines = model.order_line.len();
    assert!((298_000..302_000).contains(&lines), "{lines} order lines");

    assert_eq!(model.warehouse[&1].w_ytd, 300_000_00);
    for ((w_id, d_id), district) in &model.district {
        assert_eq!((district.d_ytd, district.d_next_o_id), (30_000_00, 3_001));
        let of_district = (*w_id, *d_id, 0)..(*w_id, *d_id, u32::MAX);
        let mut customers: Vec<u32> =
            model.order.range(of_district.clone()).map(|(_, order)| order.o_c_id).collect();
        assert!(!customers.is_sorted(), "the orders' customers are not shuffled");
        customers.sort_unstable();
        assert!(customers.into_iter().eq(1..=3_000), "the customers are not a permutation");
        let new_orders = model.new_order.range(of_district).map(|(_, row)| row.no_o_id);
        assert!(new_orders.eq(2_101..=3_000));
    }
    for customer in model.customer.values() {
        assert_eq!((customer.c_balance, customer.c_ytd_payment), (-10_00, 10_00));
        assert!((300..=500).contains(&customer.c_data.len()));
        if customer.c_id <= LAST_NAMES {
            assert_eq!(customer.c_last, last_name(customer.c_id - 1));
        }
    }
    let share = |count: usize, all: usize| count as f64 / all as f64;
    let bad = model.customer.values().filter(|row| row.c_credit == BAD_CREDIT).count();
    assert!((0.09..0.11).contains(&share(bad, model.customer.len())), "{bad} with bad credit");
    let original = model.stock.values().filter(|row| is_original(&row.s_data)).count();
    assert!((0.09..0.11).contains(&share(original, model.stock.len())), "{original} original");
    for line in model.order_line.values() {
        let delivered = line.ol_o_id <= 2_100;
        assert_eq!(line.ol_delivery_d.is_some(), delivered);
        assert_eq!(line.ol_amount == 0, delivered);
        assert!(line.ol_quantity == 5 && line.ol_amount <= 9_999_99);
        assert!((1..=100_000).contains(&line.ol_i_id));
    }
}

#[test]
#[should_panic(expected = "at least one warehouse")]
fn no_warehouse_is_refused() {
    load::<Dbx>(tiny(0), 1, 1);
}
