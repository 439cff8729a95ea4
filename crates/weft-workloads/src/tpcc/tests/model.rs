//! The five transactions against a plain model: maps of rows, changed by one transaction at a time as the
//! specification's profiles say.

use std::collections::BTreeMap;

use weft::protocol::Protocol;
use weft::schema::{OrderedRecord, Record};
use weft::{Error, Table};

use super::{assert_consistent, load, runnable_protocols};
use crate::tpcc::customer::Selector;
use crate::tpcc::mix::TransactionType;
use crate::tpcc::new_order::OrderError;
use crate::tpcc::random::is_original;
use crate::tpcc::schema::*;
use crate::tpcc::{
    Client, DeliverySearch, Parameters, Scale, Tpcc, delivery, new_order, order_status, payment,
    stock_level,
};
use crate::trials::with_protocol;
use crate::walk;
use crate::workload::Workload;

/// The nine tables.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Model {
    pub(super) warehouse: BTreeMap<u16, Warehouse>,
    pub(super) district: BTreeMap<(u16, u8), District>,
    pub(super) customer: BTreeMap<(u16, u8, u32), Customer>,
    pub(super) history: BTreeMap<(u32, u32), History>,
    pub(super) new_order: BTreeMap<(u16, u8, u32), NewOrderRow>,
    pub(super) order: BTreeMap<(u16, u8, u32), Order>,
    pub(super) order_line: BTreeMap<(u16, u8, u32, u8), OrderLine>,
    pub(super) item: BTreeMap<u32, Item>,
    pub(super) stock: BTreeMap<(u16, u32), Stock>,
}

impl Model {
    /// Reads all rows of a database.
    pub(super) fn read<P: Protocol>(tpcc: &Tpcc<P>) -> Model {
        let Scale { items, customers_per_district: customers, .. } = tpcc.parameters.scale;
        let warehouses = 1..=tpcc.parameters.warehouses;
        let tables = &tpcc.tables;
        Model {
            warehouse: by_keys(tpcc, &tables.warehouse, warehouses.clone()),
            district: by_keys(tpcc, &tables.district, tpcc.parameters.districts()),
            customer: by_keys(
                tpcc,
                &tables.customer,
                tpcc.parameters
                    .districts()
                    .flat_map(|(w, d)| (1..=customers).map(move |c| (w, d, c))),
            ),
            history: in_range(tpcc, &tables.history, (0, 0), (u32::MAX, u32::MAX)),
            new_order: in_range(tpcc, &tables.new_order, (0, 0, 0), (u16::MAX, u8::MAX, u32::MAX)),
            order: in_range(tpcc, &tables.order, (0, 0, 0), (u16::MAX, u8::MAX, u32::MAX)),
            order_line: in_range(
                tpcc,
                &tables.order_line,
                (0, 0, 0, 0),
                (u16::MAX, u8::MAX, u32::MAX, u8::MAX),
            ),
            item: by_keys(tpcc, &tables.item, 1..=items),
            stock: by_keys(
                tpcc,
                &tables.stock,
                warehouses.flat_map(|w| (1..=items).map(move |i| (w, i))),
            ),
        }
    }

    /// Replaces the values that come from the clock.
    pub(super) fn forget_dates(&mut self) {
        let never = Timestamp::from_micros(1);
        self.customer.values_mut().for_each(|row| row.c_since = never);
        self.history.values_mut().for_each(|row| row.h_date = never);
        self.order.values_mut().for_each(|row| row.o_entry_d = never);
        for line in self.order_line.values_mut() {
            line.ol_delivery_d = line.ol_delivery_d.and(Some(never));
        }
    }

    /// Clause 2.4.2.2. Returns `None` for a roll-back.
    fn new_order(&mut self, input: &new_order::Input) -> Option<new_order::Output> {
        let (w, d) = (input.w_id, input.d_id);
        if input.lines.iter().any(|line| !self.item.contains_key(&line.i_id)) {
            return None;
        }
        let mut output = new_order::Output {
            w_tax: self.warehouse[&w].w_tax,
            d_tax: self.district[&(w, d)].d_tax,
            o_id: self.district[&(w, d)].d_next_o_id,
            ..new_order::Output::default()
        };
        let o = output.o_id;
        self.district.get_mut(&(w, d)).unwrap().d_next_o_id += 1;
        let customer = &self.customer[&(w, d, input.c_id)];
        output.c_discount = customer.c_discount;
        output.c_last = customer.c_last;
        output.c_credit = Some(customer.c_credit);
        self.new_order.insert((w, d, o), NewOrderRow { no_w_id: w, no_d_id: d, no_o_id: o });
        let order = Order {
            o_w_id: w,
            o_d_id: d,
            o_id: o,
            o_c_id: input.c_id,
            o_entry_d: input.entry_d,
            o_carrier_id: None,
            o_ol_cnt: input.lines.len() as u8,
            o_all_local: !input.lines.iter().any(|line| line.supply_w_id != w),
        };
        self.order.insert((w, d, o), order);
        for (number, line) in (1..).zip(&input.lines) {
            let item = &self.item[&line.i_id];
            let stock = self.stock.get_mut(&(line.supply_w_id, line.i_id)).unwrap();
            let quantity = i32::from(line.quantity);
            if stock.s_quantity >= quantity + 10 {
                stock.s_quantity -= quantity;
            } else {
                stock.s_quantity = stock.s_quantity - quantity + 91;
            }
            stock.s_ytd += u64::from(line.quantity);
            stock.s_order_cnt += 1;
            stock.s_remote_cnt += u32::from(line.supply_w_id != w);
            let amount = item.i_price * i64::from(line.quantity);
            let row = OrderLine {
                ol_w_id: w,
                ol_d_id: d,
                ol_o_id: o,
                ol_number: number,
                ol_quantity: line.quantity,
                ol_supply_w_id: line.supply_w_id,
                ol_i_id: line.i_id,
                ol_delivery_d: None,
                ol_amount: amount,
                ol_dist_info: stock.s_dist[usize::from(d - 1)],
            };
            self.order_line.insert((w, d, o, number), row);
            output.lines.push(new_order::LineOutput {
                i_name: item.i_name,
                i_price: item.i_price,
                s_quantity: stock.s_quantity,
                brand: is_original(&item.i_data) && is_original(&stock.s_data),
                ol_amount: amount,
            });
        }
        let sum: i64 = output.lines.iter().map(|line| line.ol_amount).sum();
        let discount = 1.0 - f64::from(output.c_discount) / 1e4;
        let taxes = 1.0 + (f64::from(output.w_tax) + f64::from(output.d_tax)) / 1e4;
        output.total_amount = (sum as f64 * discount * taxes).round() as i64;
        Some(output)
    }

    /// Clause 2.5.2.2.
    fn payment(&mut self, input: &payment::Input) -> payment::Output {
        let warehouse = self.warehouse.get_mut(&input.w_id).unwrap();
        warehouse.w_ytd += input.amount;
        let district = self.district.get_mut(&(input.w_id, input.d_id)).unwrap();
        district.d_ytd += input.amount;
        let h_data = format!("{}    {}", warehouse.w_name, district.d_name);
        let c_id = self.select(input.c_w_id, input.c_d_id, &input.customer);
        let customer = self.customer.get_mut(&(input.c_w_id, input.c_d_id, c_id)).unwrap();
        customer.c_balance -= input.amount;
        customer.c_ytd_payment += input.amount;
        customer.c_payment_cnt += 1;
        let mut c_data = None;
        if customer.c_credit == BAD_CREDIT {
            let mut data = format!(
                "{c_id} {} {} {} {} {} {}",
                input.c_d_id, input.c_w_id, input.d_id, input.w_id, input.amount, customer.c_data
            );
            data.truncate(500);
            customer.c_data = data.parse().unwrap();
            data.truncate(200);
            c_data = Some(data.parse().unwrap());
        }
        let row = History {
            h_origin: input.history_key.0,
            h_sequence: input.history_key.1,
            h_c_id: c_id,
            h_c_d_id: input.c_d_id,
            h_d_id: input.d_id,
            h_c_w_id: input.c_w_id,
            h_w_id: input.w_id,
            h_date: input.date,
            h_amount: input.amount,
            h_data: h_data.parse().unwrap(),
        };
        let before = self.history.insert(input.history_key, row);
        assert_eq!(before, None, "the key was used");
        payment::Output { c_id, c_last: customer.c_last, c_balance: customer.c_balance, c_data }
    }

    /// Clause 2.6.2.2.
    fn order_status(&self, input: &order_status::Input) -> order_status::Output {
        let (w, d) = (input.w_id, input.d_id);
        let c_id = self.select(w, d, &input.customer);
        let customer = &self.customer[&(w, d, c_id)];
        let mut orders = self.order.range((w, d, 0)..(w, d, u32::MAX)).map(|(_, order)| order);
        let last = orders.rfind(|order| order.o_c_id == c_id);
        order_status::Output {
            c_id,
            c_first: customer.c_first,
            c_last: customer.c_last,
            c_balance: customer.c_balance,
            order: last.map(|order| order_status::OrderOutput {
                o_id: order.o_id,
                entry_d: order.o_entry_d,
                carrier_id: order.o_carrier_id,
                lines: (1..=order.o_ol_cnt)
                    .map(|number| &self.order_line[&(w, d, order.o_id, number)])
                    .map(|line| order_status::LineOutput {
                        supply_w_id: line.ol_supply_w_id,
                        i_id: line.ol_i_id,
                        quantity: line.ol_quantity,
                        amount: line.ol_amount,
                        delivery_d: line.ol_delivery_d,
                    })
                    .collect(),
            }),
        }
    }

    /// Clause 2.7.4.2.
    fn delivery(&mut self, input: &delivery::Input) -> delivery::Output {
        std::array::from_fn(|position| {
            let (w, d) = (input.w_id, position as u8 + 1);
            let o = self.new_order.range((w, d, 0)..(w, d + 1, 0)).next()?.0.2;
            self.new_order.remove(&(w, d, o));
            let order = self.order.get_mut(&(w, d, o)).unwrap();
            order.o_carrier_id = Some(input.carrier_id);
            let mut total = 0;
            for (_, line) in self.order_line.range_mut((w, d, o, 0)..(w, d, o + 1, 0)) {
                line.ol_delivery_d = Some(input.date);
                total += line.ol_amount;
            }
            let customer = self.customer.get_mut(&(w, d, order.o_c_id)).unwrap();
            customer.c_balance += total;
            customer.c_delivery_cnt += 1;
            Some(o)
        })
    }

    /// Clause 2.8.2.2.
    fn stock_level(&self, input: &stock_level::Input) -> usize {
        let (w, d) = (input.w_id, input.d_id);
        let next = self.district[&(w, d)].d_next_o_id;
        let lines = self.order_line.range((w, d, next - 20, 0)..(w, d, next, 0));
        let items: std::collections::BTreeSet<u32> = lines.map(|(_, line)| line.ol_i_id).collect();
        items.iter().filter(|&&i_id| self.stock[&(w, i_id)].s_quantity < input.threshold).count()
    }

    /// Clause 2.5.2.2, cases 1 and 2.
    fn select(&self, w: u16, d: u8, selector: &Selector) -> u32 {
        match selector {
            Selector::Number(c_id) => *c_id,
            Selector::LastName(last) => {
                let district = self.customer.range((w, d, 0)..(w, d, u32::MAX));
                let mut namesakes: Vec<&Customer> =
                    district.map(|(_, row)| row).filter(|row| row.c_last == *last).collect();
                namesakes.sort_by_key(|row| row.c_first);
                let rounded_up = namesakes.len().div_ceil(2);
                namesakes[rounded_up - 1].c_id
            }
        }
    }
}

fn by_keys<P: Protocol, R: Record<Key: Ord>>(
    tpcc: &Tpcc<P>,
    table: &Table<R>,
    keys: impl Iterator<Item = R::Key> + Clone,
) -> BTreeMap<R::Key, R> {
    let mut rows = BTreeMap::new();
    let snapshot = tpcc.database.open_snapshot().expect("a snapshot");
    walk::keys(&snapshot, table, keys, |key, row| {
        rows.insert(key, row.expect("a row").clone());
    })
    .expect("reads every row");
    rows
}

fn in_range<P: Protocol, R: OrderedRecord<Key: Ord>>(
    tpcc: &Tpcc<P>,
    table: &Table<R>,
    low: R::Key,
    high: R::Key,
) -> BTreeMap<R::Key, R> {
    let snapshot = tpcc.database.open_snapshot().expect("a snapshot");
    let rows = snapshot.range(table, low..=high).map(|row| row.expect("reads every row"));
    rows.map(|row| (row.key(), row.clone())).collect()
}

/// Runs one transaction on both, and compares the outputs.
fn step<P: Protocol>(tpcc: &Tpcc<P>, client: &mut Client, model: &mut Model, context: &str) {
    let (database, tables) = (&tpcc.database, &tpcc.tables);
    let mut found = Vec::new();
    match client.draw_transaction() {
        TransactionType::NewOrder => {
            let input = new_order::Input::draw(client);
            let mut output = new_order::Output::default();
            let shown = database.transact(|tx| new_order::run(tables, tx, &input, &mut output));
            let shown = match shown {
                Ok(()) => Some(output),
                Err(OrderError::UnusedItem) => None,
                Err(OrderError::Engine(error)) => panic!("{context}: {error}"),
            };
            assert_eq!(shown, model.new_order(&input), "{context}: {input:?}");
        }
        TransactionType::Payment => {
            let input = payment::Input::draw(client);
            let shown = database.transact(|tx| payment::run(tables, tx, &input, &mut found));
            let shown: Result<_, Error> = shown;
            assert_eq!(shown.expect(context), model.payment(&input), "{context}: {input:?}");
        }
        TransactionType::OrderStatus => {
            let input = order_status::Input::draw(client);
            let shown = database.transact(|tx| order_status::run(tables, tx, &input, &mut found));
            assert_eq!(shown.expect(context), model.order_status(&input), "{context}: {input:?}");
        }
        TransactionType::Delivery => {
            let input = delivery::Input::draw(client);
            let shown = database.transact(|tx| delivery::run(tables, tx, &input)).expect(context);
            assert_eq!(shown, model.delivery(&input), "{context}: {input:?}");
            client.note_delivered(input.w_id, &shown);
        }
        TransactionType::StockLevel => {
            let input = stock_level::Input::draw(client);
            let shown = database.transact(|tx| stock_level::run(tables, tx, &input, &mut found));
            assert_eq!(shown.expect(context), model.stock_level(&input), "{context}: {input:?}");
        }
    }
}

fn agrees_with_the_model<P: Protocol>() {
    let searches = [DeliverySearch::FromStart, DeliverySearch::BehindLast];
    for (seed, warehouses, delivery_search) in [(1, 1, searches[0]), (2, 3, searches[1])] {
        let parameters =
            Parameters { warehouses, scale: Scale::TINY, delivery_search, ..Parameters::default() };
        let tpcc: Tpcc<P> = load(parameters, seed, 1);
        let mut model = Model::read(&tpcc);
        let mut client = tpcc.client(seed, 0, 1);
        for number in 0..1_500 {
            let context = format!("{}, seed {seed}, transaction {number}", P::NAME);
            step(&tpcc, &mut client, &mut model, &context);
        }
        assert!(Model::read(&tpcc) == model, "{}, seed {seed}: rows differ", P::NAME);
        assert_consistent(&tpcc, P::NAME);
    }
}

#[test]
fn every_protocol_agrees_with_the_model() {
    for name in runnable_protocols() {
        with_protocol!(name, |P| agrees_with_the_model::<P>()).expect("a name of the list");
    }
}
