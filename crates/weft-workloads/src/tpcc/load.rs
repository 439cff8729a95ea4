//! The initial population (clause 4.3).
//!
//! The rows are divided into units, such as a district's customers. Each unit has a random source of its own, so
//! the rows do not depend on which thread loads which unit. If a unit's rows go to several tables, the unit is
//! drawn once for each table.

use weft::htm::word::Word;
use weft::protocol::Protocol;
use weft::{Builder, Database, Failure};

use super::random::{Constants, Random, last_name};
use super::schema::{
    BAD_CREDIT, BasisPoints, Cents, Customer, DISTRICTS, District, FixedText, GOOD_CREDIT, History,
    Item, LINES_MAX, NewOrderRow, Order, OrderLine, Stock, Timestamp, Warehouse,
};
use super::{Parameters, Scale, Tables, Tpcc};
use crate::load::LoadInProgress;
use crate::workload::{LoadOptions, failure_of};

/// The sum that each customer has paid before the load ends (clause 4.3.3.1).
const FIRST_PAYMENT: Cents = 10_00;

/// The number of items, or of rows of stock, in one unit.
const UNIT_ROWS: u32 = 10_000;

/// The average number of order lines per order. This number is counted as loaded with each order.
const LINES_MEAN: u64 = (5 + LINES_MAX as u64) / 2;

/// Fills the tables.
pub(super) fn fill<P: Protocol>(
    database: Database<P>,
    parameters: &Parameters,
    options: &LoadOptions<'_>,
) -> Result<Tpcc<P>, Failure> {
    let scale = parameters.scale;
    let tables = Tables::of(&database)?;
    let constants = constants(options.seed);
    let population = Population {
        units: units(parameters),
        scale,
        constants,
        seed: options.seed,
        date: Timestamp::now(),
    };
    let mut loading = LoadInProgress::new(options, rows_of(parameters));
    let part = |is_in: fn(&Unit) -> bool| population.part(is_in);
    let warehouses = part(|unit| matches!(unit, Unit::Warehouse(_)));
    loading.fill(&database, &tables.warehouse, warehouses.all(), Part::warehouses)?;
    loading.fill(&database, &tables.district, warehouses.all(), Part::districts)?;
    let items = part(|unit| matches!(unit, Unit::Items(..)));
    loading.fill(&database, &tables.item, items.all(), Part::items)?;
    let orders = part(|unit| matches!(unit, Unit::Orders(..)));
    loading.fill(&database, &tables.new_order, orders.all(), Part::new_orders)?;
    loading.fill(&database, &tables.order, orders.all(), Part::orders)?;
    let customers = part(|unit| matches!(unit, Unit::Customers(..)));
    loading.fill(&database, &tables.history, customers.all(), Part::history)?;
    loading.fill(&database, &tables.customer, customers.all(), Part::customers)?;
    loading.fill(&database, &tables.order_line, orders.all(), Part::order_lines)?;
    let stock = part(|unit| matches!(unit, Unit::Stock(..)));
    loading.fill(&database, &tables.stock, stock.all(), Part::stock)?;
    loading.finish();
    Ok(Tpcc { database, tables, parameters: parameters.clone(), constants, clients: Word::new(0) })
}

/// Opens a database that was filled earlier with the same parameters and seed.
pub(super) fn reopen<P: Protocol>(
    builder: Builder<P>,
    parameters: &Parameters,
    seed: u64,
) -> Result<Tpcc<P>, Failure> {
    let database = declare(parameters, builder).open()?;
    let tables = Tables::of(&database)?;
    // New clients must not use the origins of earlier clients in the keys of history rows.
    let last_origin = database.transact(|tx| {
        let last = tx.range(&tables.history, ..).descending().next().transpose()?;
        Ok(last.map_or(0, |row| row.h_origin))
    });
    let last_origin = last_origin.map_err(failure_of)?;
    let clients = Word::new(History::clients_up_to(last_origin).into());
    let constants = constants(seed);
    Ok(Tpcc { database, tables, parameters: parameters.clone(), constants, clients })
}

fn constants(seed: u64) -> Constants {
    Constants::draw(&mut Random::new(seed, 0))
}

/// The number of rows of each table per warehouse. The items are not here, because all warehouses share them.
struct Cardinalities {
    districts: u64,
    customers: u64,
    orders: u64,
    order_lines: u64,
    new_orders: u64,
    stock: u64,
}

impl Cardinalities {
    fn of(scale: &Scale) -> Cardinalities {
        let districts = u64::from(DISTRICTS);
        let orders = districts * u64::from(scale.orders_per_district);
        Cardinalities {
            districts,
            customers: districts * u64::from(scale.customers_per_district),
            orders,
            order_lines: orders * LINES_MEAN,
            new_orders: orders - districts * u64::from(scale.delivered_per_district()),
            stock: scale.items.into(),
        }
    }
}

/// Returns the number of rows to load, with the average number of order lines.
fn rows_of(parameters: &Parameters) -> u64 {
    let Cardinalities { districts, customers, orders, order_lines, new_orders, stock } =
        Cardinalities::of(&parameters.scale);
    // Each customer has a row of history.
    let per_warehouse = 1 + districts + 2 * customers + orders + order_lines + new_orders + stock;
    u64::from(parameters.scale.items) + u64::from(parameters.warehouses) * per_warehouse
}

/// Adds the nine tables.
///
/// # Panics
/// A number in `parameters` is 0.
pub(super) fn declare<P: Protocol>(parameters: &Parameters, builder: Builder<P>) -> Builder<P> {
    let Parameters { warehouses, scale, .. } = *parameters;
    let Scale { items, customers_per_district, orders_per_district } = scale;
    assert!(warehouses > 0, "TPC-C needs at least one warehouse");
    assert!(
        items > 0 && customers_per_district > 0 && orders_per_district > 0,
        "TPC-C needs items, customers and orders: {scale:?}"
    );
    let Cardinalities { districts, customers, orders, order_lines, new_orders, stock } =
        Cardinalities::of(&scale);
    let all = |per_warehouse: u64| usize::from(warehouses) * per_warehouse as usize;
    builder
        .table_with_capacity::<Warehouse>(all(1))
        .table_with_capacity::<District>(all(districts))
        .table_with_capacity::<Customer>(all(customers))
        .table_with_capacity::<History>(all(customers))
        .table_with_capacity::<NewOrderRow>(all(new_orders))
        .table_with_capacity::<Order>(all(orders))
        .table_with_capacity::<OrderLine>(all(order_lines))
        .table_with_capacity::<Item>(items as usize)
        .table_with_capacity::<Stock>(all(stock))
}

impl Tables {
    fn of<P: Protocol>(database: &Database<P>) -> Result<Tables, Failure> {
        Ok(Tables {
            warehouse: database.table()?,
            district: database.table()?,
            customer: database.table()?,
            history: database.table()?,
            new_order: database.table()?,
            order: database.table()?,
            order_line: database.table()?,
            item: database.table()?,
            stock: database.table()?,
        })
    }
}

/// A part of the population, with a random source of its own.
#[derive(Clone, Copy, Debug)]
enum Unit {
    /// Items, from the first to the last.
    Items(u32, u32),
    /// A warehouse's row, and the rows of its districts.
    Warehouse(u16),
    /// A warehouse's stock, from the first item to the last.
    Stock(u16, u32, u32),
    /// A district's customers, with their history.
    Customers(u16, u8),
    /// A district's orders, with their lines, and new orders.
    Orders(u16, u8),
}

/// Returns the units of the whole population.
fn units(parameters: &Parameters) -> Vec<Unit> {
    let items = parameters.scale.items;
    let chunks = || {
        let firsts = (1..=items).step_by(UNIT_ROWS as usize);
        firsts.map(move |first| (first, items.min(first + (UNIT_ROWS - 1))))
    };
    let mut units: Vec<Unit> = chunks().map(|(first, last)| Unit::Items(first, last)).collect();
    for w_id in 1..=parameters.warehouses {
        units.push(Unit::Warehouse(w_id));
        units.extend(chunks().map(|(first, last)| Unit::Stock(w_id, first, last)));
        units.extend((1..=DISTRICTS).map(|d_id| Unit::Customers(w_id, d_id)));
        units.extend((1..=DISTRICTS).map(|d_id| Unit::Orders(w_id, d_id)));
    }
    units
}

/// The population to load.
struct Population {
    units: Vec<Unit>,
    scale: Scale,
    constants: Constants,
    seed: u64,
    /// The date in all loaded rows.
    date: Timestamp,
}

/// Units of one kind, by their positions among all units.
struct Part<'a> {
    population: &'a Population,
    positions: Vec<usize>,
}

/// The orders of a district, with their lines and new orders.
#[derive(Default)]
struct Orders {
    orders: Vec<Order>,
    new_orders: Vec<NewOrderRow>,
    lines: Vec<OrderLine>,
}

impl Part<'_> {
    /// Returns all units in the form that [`LoadInProgress::fill`] takes.
    fn all(&self) -> (&Self, u64) {
        (self, self.positions.len() as u64)
    }

    /// Returns the `n`-th unit and its random source.
    fn unit(&self, n: u64) -> (Unit, Random) {
        let position = self.positions[n as usize];
        let random = Random::new(self.population.seed, position as u64 + 1);
        (self.population.units[position], random)
    }

    fn items(&self, n: u64) -> Vec<Item> {
        let (Unit::Items(first, last), mut random) = self.unit(n) else { return Vec::new() };
        (first..=last).map(|i_id| item(&mut random, i_id)).collect()
    }

    fn warehouses(&self, n: u64) -> Option<Warehouse> {
        self.warehouse(n).map(|(warehouse, _)| warehouse)
    }

    fn districts(&self, n: u64) -> Vec<District> {
        self.warehouse(n).map(|(_, districts)| districts).unwrap_or_default()
    }

    fn warehouse(&self, n: u64) -> Option<(Warehouse, Vec<District>)> {
        let (Unit::Warehouse(w_id), mut random) = self.unit(n) else { return None };
        let scale = &self.population.scale;
        let ytd = FIRST_PAYMENT * Cents::from(scale.customers_per_district);
        let warehouse = warehouse(&mut random, w_id, ytd * Cents::from(DISTRICTS));
        let next_o_id = scale.orders_per_district + 1;
        let districts =
            (1..=DISTRICTS).map(|d_id| district(&mut random, (w_id, d_id), ytd, next_o_id));
        Some((warehouse, districts.collect()))
    }

    fn stock(&self, n: u64) -> Vec<Stock> {
        let (Unit::Stock(w_id, first, last), mut random) = self.unit(n) else { return Vec::new() };
        (first..=last).map(|i_id| stock(&mut random, w_id, i_id)).collect()
    }

    fn customers(&self, n: u64) -> Vec<Customer> {
        self.customers_with_history(n).0
    }

    fn history(&self, n: u64) -> Vec<History> {
        self.customers_with_history(n).1
    }

    fn customers_with_history(&self, n: u64) -> (Vec<Customer>, Vec<History>) {
        let (Unit::Customers(w_id, d_id), mut random) = self.unit(n) else {
            return (Vec::new(), Vec::new());
        };
        let (population, random) = (self.population, &mut random);
        let ids = 1..=population.scale.customers_per_district;
        let customers = ids.clone().map(|c_id| population.customer(random, w_id, d_id, c_id));
        let customers = customers.collect();
        let history = ids.map(|c_id| population.history(random, w_id, d_id, c_id)).collect();
        (customers, history)
    }

    fn orders(&self, n: u64) -> Vec<Order> {
        self.orders_with_lines(n).orders
    }

    fn new_orders(&self, n: u64) -> Vec<NewOrderRow> {
        self.orders_with_lines(n).new_orders
    }

    fn order_lines(&self, n: u64) -> Vec<OrderLine> {
        self.orders_with_lines(n).lines
    }

    fn orders_with_lines(&self, n: u64) -> Orders {
        let (Unit::Orders(w_id, d_id), mut random) = self.unit(n) else { return Orders::default() };
        let (population, random) = (self.population, &mut random);
        let Scale { customers_per_district, orders_per_district, .. } = population.scale;
        // Clause 4.3.3.1: the orders' customers are a permutation. (A test's district may have more orders than
        // customers. Then the permutation is repeated.)
        let mut customers: Vec<u32> = (1..=customers_per_district).collect();
        random.shuffle(&mut customers);
        let mut all = Orders::default();
        for (o_id, &c_id) in (1..=orders_per_district).zip(customers.iter().cycle()) {
            let order = population.order(random, (w_id, d_id, o_id), c_id);
            let numbers = 1..=order.o_ol_cnt;
            all.lines.extend(numbers.map(|number| population.order_line(random, &order, number)));
            if order.o_carrier_id.is_none() {
                all.new_orders.push(NewOrderRow { no_w_id: w_id, no_d_id: d_id, no_o_id: o_id });
            }
            all.orders.push(order);
        }
        all
    }
}

impl Population {
    /// Returns the units of one kind.
    fn part(&self, is_in: fn(&Unit) -> bool) -> Part<'_> {
        let positions = (0..self.units.len()).filter(|&position| is_in(&self.units[position]));
        Part { population: self, positions: positions.collect() }
    }

    fn customer(&self, random: &mut Random, w_id: u16, d_id: u8, c_id: u32) -> Customer {
        let names = self.scale.last_names();
        let last = if c_id <= names {
            c_id - 1
        } else {
            random.last_name_number(self.constants.last_name_load, names)
        };
        Customer {
            c_w_id: w_id,
            c_d_id: d_id,
            c_id,
            c_credit: if random.chance(10) { BAD_CREDIT } else { GOOD_CREDIT },
            c_discount: random.within(0, 5_000) as BasisPoints,
            c_balance: -FIRST_PAYMENT,
            c_ytd_payment: FIRST_PAYMENT,
            c_payment_cnt: 1,
            c_delivery_cnt: 0,
            c_credit_lim: 50_000_00,
            c_since: self.date,
            c_first: random.text(8..=16),
            c_middle: FixedText::new(*b"OE"),
            c_last: last_name(last),
            c_street_1: random.text(10..=20),
            c_street_2: random.text(10..=20),
            c_city: random.text(10..=20),
            c_state: random.fixed_text(),
            c_zip: random.zip(),
            c_phone: random.digits(),
            c_data: random.text(300..=500),
        }
    }

    fn history(&self, random: &mut Random, w_id: u16, d_id: u8, c_id: u32) -> History {
        History {
            h_origin: w_id.into(),
            h_sequence: u32::from(d_id - 1) * self.scale.customers_per_district + c_id,
            h_c_id: c_id,
            h_c_d_id: d_id,
            h_d_id: d_id,
            h_c_w_id: w_id,
            h_w_id: w_id,
            h_date: self.date,
            h_amount: FIRST_PAYMENT,
            h_data: random.text(12..=24),
        }
    }

    fn order(&self, random: &mut Random, (w_id, d_id, o_id): (u16, u8, u32), c_id: u32) -> Order {
        let delivered = o_id <= self.scale.delivered_per_district();
        Order {
            o_w_id: w_id,
            o_d_id: d_id,
            o_id,
            o_c_id: c_id,
            o_entry_d: self.date,
            o_carrier_id: delivered.then(|| random.within_u8(1, 10)),
            o_ol_cnt: random.within_u8(5, LINES_MAX as u8),
            o_all_local: true,
        }
    }

    fn order_line(&self, random: &mut Random, order: &Order, number: u8) -> OrderLine {
        let delivered = order.o_carrier_id.is_some();
        OrderLine {
            ol_w_id: order.o_w_id,
            ol_d_id: order.o_d_id,
            ol_o_id: order.o_id,
            ol_number: number,
            ol_quantity: 5,
            ol_supply_w_id: order.o_w_id,
            ol_i_id: random.within(1, self.scale.items),
            ol_delivery_d: delivered.then_some(order.o_entry_d),
            ol_amount: if delivered { 0 } else { random.within_i64(1, 9_999_99) },
            ol_dist_info: random.fixed_text(),
        }
    }
}

fn item(random: &mut Random, i_id: u32) -> Item {
    Item {
        i_id,
        i_im_id: random.within(1, 10_000),
        i_price: random.within_i64(1_00, 100_00),
        i_name: random.text(14..=24),
        i_data: random.data(),
    }
}

fn warehouse(random: &mut Random, w_id: u16, w_ytd: Cents) -> Warehouse {
    Warehouse {
        w_id,
        w_tax: random.within(0, 2_000) as BasisPoints,
        w_ytd,
        w_name: random.text(6..=10),
        w_street_1: random.text(10..=20),
        w_street_2: random.text(10..=20),
        w_city: random.text(10..=20),
        w_state: random.fixed_text(),
        w_zip: random.zip(),
    }
}

fn district(
    random: &mut Random,
    (d_w_id, d_id): (u16, u8),
    d_ytd: Cents,
    d_next_o_id: u32,
) -> District {
    District {
        d_w_id,
        d_id,
        d_tax: random.within(0, 2_000) as BasisPoints,
        d_next_o_id,
        d_ytd,
        d_name: random.text(6..=10),
        d_street_1: random.text(10..=20),
        d_street_2: random.text(10..=20),
        d_city: random.text(10..=20),
        d_state: random.fixed_text(),
        d_zip: random.zip(),
    }
}

fn stock(random: &mut Random, s_w_id: u16, s_i_id: u32) -> Stock {
    Stock {
        s_w_id,
        s_i_id,
        s_quantity: random.within_u8(10, 100).into(),
        s_order_cnt: 0,
        s_remote_cnt: 0,
        s_ytd: 0,
        s_dist: std::array::from_fn(|_| random.fixed_text()),
        s_data: random.data(),
    }
}
