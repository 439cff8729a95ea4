//! The five transactions as procedures.

use weft::protocol::Dbx;

use super::load;
use crate::procedures::rehearsal::{AccessedRow, Change, Subject, Tally, subject, without};
use crate::tpcc::customer::Selector;
use crate::tpcc::mix::TransactionType;
use crate::tpcc::schema::{
    Customer, DISTRICTS, District, Item, NewOrderRow, Order, OrderLine, Stock, Warehouse,
};
use crate::tpcc::{
    Parameters, Scale, Tpcc, delivery, new_order, order_status, payment, stock_level,
};
use crate::workload::Workload;

/// Returns some changes, mostly to rows that a transaction has accessed.
fn changes(
    tpcc: &Tpcc<Dbx>,
    random: &mut fastrand::Rng,
    met: &[AccessedRow],
    customer: Option<(u16, u8, &Selector)>,
) -> Vec<Change> {
    (0..random.usize(1..=3)).filter_map(|_| change(tpcc, random, met, customer)).collect()
}

fn change(
    tpcc: &Tpcc<Dbx>,
    random: &mut fastrand::Rng,
    met: &[AccessedRow],
    customer: Option<(u16, u8, &Selector)>,
) -> Option<Change> {
    let tables = &tpcc.tables;
    let number = random.u32(1..1_000);
    let (w_id, d_id) = (1, random.u8(1..=DISTRICTS));
    // Rows that scans return are not in `met`.
    match random.u32(..8) {
        0 => {
            let key = (w_id, d_id, random.u32(20..=30));
            return Some(Change::put::<NewOrderRow>(&tables.new_order, key, None));
        }
        1 => {
            let key = (w_id, d_id, random.u32(10..=30), random.u8(1..=8));
            let is_item = random.bool();
            return Some(Change::update(&tables.order_line, key, move |row: &mut OrderLine| {
                match is_item {
                    true => row.ol_i_id = number % 200 + 1,
                    false => row.ol_amount += i64::from(number),
                }
            }));
        }
        2 => {
            // Another customer gets the name.
            let (w_id, d_id, Selector::LastName(last)) = customer? else { return None };
            let (key, last) = ((w_id, d_id, number % 30 + 1), *last);
            return Some(Change::update(&tables.customer, key, move |row: &mut Customer| {
                row.c_last = last;
            }));
        }
        _ => {}
    }
    let met = &met[random.usize(..met.len())];
    if let Some(&key) = met.key::<Warehouse>() {
        return Some(Change::update(&tables.warehouse, key, move |row: &mut Warehouse| {
            row.w_tax = number as _;
            row.w_name = number.to_string().as_str().try_into().expect("it is short");
        }));
    }
    if let Some(&key) = met.key::<District>() {
        let (is_next, more) = (random.bool(), number % 3 + 1);
        return Some(Change::update(
            &tables.district,
            key,
            move |row: &mut District| match is_next {
                true => row.d_next_o_id += more,
                false => row.d_tax = number as _,
            },
        ));
    }
    if let Some(&key) = met.key::<Customer>() {
        return Some(Change::update(&tables.customer, key, move |row: &mut Customer| {
            row.c_balance += i64::from(number);
            row.c_discount = number as _;
        }));
    }
    if let Some(&key) = met.key::<Item>() {
        return Some(match random.u32(..8) {
            0 => Change::put::<Item>(&tables.item, key, None),
            _ => Change::update(&tables.item, key, move |row: &mut Item| {
                row.i_price += i64::from(number);
            }),
        });
    }
    if let Some(&key) = met.key::<Stock>() {
        return Some(Change::update(&tables.stock, key, move |row: &mut Stock| {
            row.s_quantity = number as i32;
            row.s_dist.rotate_left(1);
        }));
    }
    if let Some(&key) = met.key::<Order>() {
        return Some(Change::update(&tables.order, key, move |row: &mut Order| {
            row.o_c_id = number % 30 + 1;
        }));
    }
    None
}

/// Tries a transaction of a type.
fn try_one(
    tpcc: &Tpcc<Dbx>,
    of_type: TransactionType,
    seed: u64,
    shape: Option<&weft_procedures::Shape>,
    tally: &mut Tally,
) {
    let mut client = tpcc.client(seed, 0, 1);
    let random = std::cell::RefCell::new(fastrand::Rng::with_seed(seed));
    let context = format!("seed {seed}");
    let tables = &tpcc.tables;
    let mut attempt = |subject: &Subject<'_>, customer: Option<(u16, u8, &Selector)>| {
        let choose = |met: &[AccessedRow]| changes(tpcc, &mut random.borrow_mut(), met, customer);
        let shape = shape.unwrap_or(subject.shape);
        let mut own = fastrand::Rng::with_seed(!seed);
        tally.trial(tpcc.database(), subject, shape, &mut own, &choose, &context);
    };
    match of_type {
        TransactionType::NewOrder => {
            let input = new_order::Input::draw(&mut client);
            attempt(
                &subject!(|output: new_order::Output| {
                    new_order::NewOrder::new(tables, &input, output)
                }),
                None,
            );
        }
        TransactionType::Payment => {
            let input = payment::Input::draw(&mut client);
            let customer = (input.c_w_id, input.c_d_id, &input.customer);
            attempt(
                &subject!(|found: Vec<u32>| payment::Payment::new(tables, &input, found)),
                Some(customer),
            );
        }
        TransactionType::OrderStatus => {
            let input = order_status::Input::draw(&mut client);
            let customer = (input.w_id, input.d_id, &input.customer);
            attempt(
                &subject!(|found: Vec<u32>| order_status::OrderStatus::new(tables, &input, found)),
                Some(customer),
            );
        }
        TransactionType::Delivery => {
            let input = delivery::Input::draw(&mut client);
            attempt(&subject!(|| delivery::Delivery::new(tables, &input)), None);
        }
        TransactionType::StockLevel => {
            let input = stock_level::Input::draw(&mut client);
            attempt(
                &subject!(|found: Vec<u32>| stock_level::StockLevel::new(tables, &input, found)),
                None,
            );
        }
    }
}

fn tiny() -> Tpcc<Dbx> {
    load(Parameters { scale: Scale::TINY, ..Parameters::default() }, 3, 1)
}

#[test]
fn repair_equals_a_run_from_the_start() {
    let tpcc = tiny();
    for of_type in TransactionType::ALL {
        let mut tally = Tally::default();
        for seed in 0..200 {
            try_one(&tpcc, of_type, seed, None, &mut tally);
        }
        println!("{of_type:?}: {tally:?}");
        assert!(tally.kept > 0 && tally.ran_again > 0, "{of_type:?}: {tally:?}");
    }
}

/// Checks that the test above can fail: it notices each dependency that is removed from a shape.
#[test]
fn missing_dependency_is_detected() {
    use weft_procedures::Procedure;
    let tpcc = tiny();
    let of_new_order = new_order::NewOrder::<Dbx>::shape();
    let of_payment = payment::Payment::<Dbx>::shape();
    let of_delivery = delivery::Delivery::<Dbx>::shape();
    use TransactionType::{Delivery, NewOrder, Payment};
    for (of_type, shape, step, on) in [
        (NewOrder, of_new_order, 4, 3),
        (NewOrder, of_new_order, 6, 3),
        (NewOrder, of_new_order, 6, 5),
        (NewOrder, of_new_order, 7, 3),
        (Payment, of_payment, 5, 4),
        (Payment, of_payment, 6, 1),
        (Payment, of_payment, 6, 4),
        (Delivery, of_delivery, 2, 0),
        (Delivery, of_delivery, 5, 3),
    ] {
        let wrong = without(shape, step, on);
        let mut tally = Tally::default();
        let found = (0..400).any(|seed| {
            try_one(&tpcc, of_type, seed, Some(&wrong), &mut tally);
            tally.uncovered > 0
        });
        assert!(found, "{of_type:?}, step {step} on {on}");
    }
}
