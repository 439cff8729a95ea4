//! One pass over all nine tables that sums up what the rules compare.
//!
//! The order of the tables is such that the sums of one side of a rule are complete when the other side is read:
//!
//! 1. warehouses and districts: the expected sums;
//! 2. history: the sums paid, by warehouse, district and customer;
//! 3. orders, new orders and order lines, district by district: the sums ordered and delivered, by customer and by
//!    stock. The three tables are sorted in the same way, and are merged by order number;
//! 4. customers and stock: compared with the sums of steps 2 and 3;
//! 5. warehouses and districts: compared with their sums.
//!
//! The sums are kept in plain arrays, one element per warehouse, district, customer and stock.

use weft::{Failure, Snapshot};

use super::{Findings, Rule};
use crate::tpcc::schema::{Cents, Customer, DISTRICTS, LINES_MAX, Order};
use crate::tpcc::{Parameters, Scale, Tables};
use crate::walk;
use crate::workload::Progress;

/// Reads the database and checks every rule.
pub(super) fn take(
    snapshot: &Snapshot,
    tables: &Tables,
    parameters: &Parameters,
    progress: Progress<'_>,
) -> Result<Findings, Failure> {
    let mut survey = Survey::new(snapshot, tables, parameters, progress);
    survey.read_warehouses_and_districts()?;
    survey.read_history()?;
    for (w_id, d_id) in parameters.districts() {
        survey.read_orders(w_id, d_id)?;
        survey.read_indexes(w_id, d_id)?;
        survey.read_customers(w_id, d_id)?;
    }
    for w_id in 1..=parameters.warehouses {
        survey.read_stock(w_id)?;
    }
    survey.compare_districts();
    survey.compare_warehouses();
    Ok(survey.findings)
}

#[derive(Clone, Default)]
struct WarehouseSums {
    ytd: Cents,
    districts_ytd: Cents,
    paid: Cents,
}

#[derive(Clone, Default)]
struct DistrictSums {
    next_o_id: u32,
    ytd: Cents,
    paid: Cents,
    orders: u64,
    last_order: u32,
    new_orders: u64,
    first_new_order: u32,
    last_new_order: u32,
    expected_lines: u64,
    lines: u64,
    deliveries: u64,
}

#[derive(Clone, Default)]
struct CustomerSums {
    paid: Cents,
    payments: u32,
    orders: u32,
    delivered: Cents,
}

#[derive(Clone, Default)]
struct StockSums {
    lines: u32,
    remote_lines: u32,
    quantity: u64,
}

/// The sums for an order while its district is being read.
struct OrderSums {
    o_id: u32,
    is_new: bool,
    has_carrier: bool,
    expected_lines: u32,
    lines: u32,
    delivered: Cents,
    /// The position of the customer in [`Survey::customers`], or `None` if the customer does not exist.
    customer: Option<usize>,
}

struct Survey<'a> {
    snapshot: &'a Snapshot,
    tables: &'a Tables,
    parameters: &'a Parameters,
    findings: Findings,
    warehouses: Vec<WarehouseSums>,
    districts: Vec<DistrictSums>,
    customers: Vec<CustomerSums>,
    stock: Vec<StockSums>,
    progress: Progress<'a>,
    rows_done: u64,
    rows: u64,
}

impl<'a> Survey<'a> {
    fn new(
        snapshot: &'a Snapshot,
        tables: &'a Tables,
        parameters: &'a Parameters,
        progress: Progress<'a>,
    ) -> Self {
        let Scale { items, customers_per_district, .. } = parameters.scale;
        let warehouses = usize::from(parameters.warehouses);
        let districts = warehouses * usize::from(DISTRICTS);
        Survey {
            snapshot,
            tables,
            parameters,
            findings: Findings::default(),
            warehouses: vec![WarehouseSums::default(); warehouses],
            districts: vec![DistrictSums::default(); districts],
            customers: vec![CustomerSums::default(); districts * customers_per_district as usize],
            stock: vec![StockSums::default(); warehouses * items as usize],
            progress,
            rows_done: 0,
            rows: 0,
        }
    }

    /// Counts rows as read. The mean is used for the number of an order's lines, because the total counts them
    /// before they are read, when only the number of orders is known.
    fn done(&mut self, rows: u64) {
        self.rows_done += rows;
        (self.progress)(self.rows_done, self.rows);
    }

    fn warehouse_at(&self, w_id: u16) -> Option<usize> {
        position(w_id.into(), self.parameters.warehouses.into())
    }

    fn district_at(&self, w_id: u16, d_id: u8) -> Option<usize> {
        let within = position(d_id.into(), DISTRICTS.into())?;
        Some(self.warehouse_at(w_id)? * usize::from(DISTRICTS) + within)
    }

    fn customer_at(&self, w_id: u16, d_id: u8, c_id: u32) -> Option<usize> {
        let count = self.parameters.scale.customers_per_district;
        Some(self.district_at(w_id, d_id)? * count as usize + position(c_id, count)?)
    }

    fn stock_at(&self, w_id: u16, i_id: u32) -> Option<usize> {
        let count = self.parameters.scale.items;
        Some(self.warehouse_at(w_id)? * count as usize + position(i_id, count)?)
    }

    fn read_warehouses_and_districts(&mut self) -> Result<(), Failure> {
        let Survey { snapshot, tables, parameters, .. } = *self;
        let keys = 1..=parameters.warehouses;
        walk::keys(snapshot, &tables.warehouse, keys, |w_id, row| {
            let ytd = row.map(|row| row.w_ytd);
            let place = format_args!("warehouse {w_id} is missing");
            self.findings.check(Rule::References, ytd.is_some(), place);
            self.warehouses[usize::from(w_id) - 1].ytd = ytd.unwrap_or_default();
        })?;
        walk::keys(snapshot, &tables.district, parameters.districts(), |(w_id, d_id), row| {
            let found = row.map(|row| (row.d_ytd, row.d_next_o_id));
            let place = format_args!("warehouse {w_id}, district {d_id} is missing");
            self.findings.check(Rule::References, found.is_some(), place);
            let (ytd, next_o_id) = found.unwrap_or((0, 1));
            self.warehouses[usize::from(w_id) - 1].districts_ytd += ytd;
            let at = self.district_at(w_id, d_id).expect("the district exists");
            self.districts[at].ytd = ytd;
            self.districts[at].next_o_id = next_o_id;
        })?;
        let orders: u64 = self.districts.iter().map(rows_of_orders).sum();
        self.rows = (self.customers.len() + self.stock.len()) as u64 + orders;
        Ok(())
    }

    fn read_history(&mut self) -> Result<(), Failure> {
        let Survey { snapshot, tables, .. } = *self;
        for row in snapshot.rows(&tables.history) {
            let row = row?;
            let district = self.district_at(row.h_w_id, row.h_d_id);
            let customer = self.customer_at(row.h_c_w_id, row.h_c_d_id, row.h_c_id);
            let known = district.zip(customer);
            self.findings.check(
                Rule::References,
                known.is_some(),
                format_args!("a row of history refers to a row that does not exist: {row:?}"),
            );
            if let Some((district, customer)) = known {
                self.warehouses[usize::from(row.h_w_id) - 1].paid += row.h_amount;
                self.districts[district].paid += row.h_amount;
                self.customers[customer].paid += row.h_amount;
                self.customers[customer].payments += 1;
            }
        }
        Ok(())
    }

    /// Reads a district's orders, new orders and order lines.
    fn read_orders(&mut self, w_id: u16, d_id: u8) -> Result<(), Failure> {
        let district = self.district_at(w_id, d_id).expect("the district exists");
        let mut sums = std::mem::take(&mut self.districts[district]);
        let mut orders = self.orders(w_id, d_id)?;
        self.merge_new_orders(w_id, d_id, &mut orders, &mut sums)?;
        self.merge_order_lines(w_id, d_id, &mut orders, &mut sums)?;
        for order in &orders {
            self.compare_order(w_id, d_id, order);
            sums.orders += 1;
            sums.last_order = order.o_id;
            sums.expected_lines += u64::from(order.expected_lines);
            if let Some(customer) = order.customer {
                self.customers[customer].orders += 1;
                self.customers[customer].delivered += order.delivered;
            }
        }
        self.done(rows_of_orders(&sums));
        self.districts[district] = sums;
        Ok(())
    }

    fn orders(&mut self, w_id: u16, d_id: u8) -> Result<Vec<OrderSums>, Failure> {
        let Survey { snapshot, tables, .. } = *self;
        let mut orders = Vec::new();
        for row in snapshot.prefix(&tables.order, &(w_id, d_id)) {
            let row = row?;
            let customer = self.customer_at(w_id, d_id, row.o_c_id);
            self.findings.check(
                Rule::References,
                customer.is_some(),
                format_args!("an order's customer does not exist: {row:?}"),
            );
            orders.push(OrderSums {
                o_id: row.o_id,
                is_new: false,
                has_carrier: row.o_carrier_id.is_some(),
                expected_lines: row.o_ol_cnt.into(),
                lines: 0,
                delivered: 0,
                customer,
            });
        }
        Ok(orders)
    }

    fn merge_new_orders(
        &mut self,
        w_id: u16,
        d_id: u8,
        orders: &mut [OrderSums],
        sums: &mut DistrictSums,
    ) -> Result<(), Failure> {
        let Survey { snapshot, tables, .. } = *self;
        let mut cursor = Cursor::new(orders);
        for row in snapshot.prefix(&tables.new_order, &(w_id, d_id)) {
            let o_id = row?.no_o_id;
            if sums.new_orders == 0 {
                sums.first_new_order = o_id;
            }
            sums.last_new_order = o_id;
            sums.new_orders += 1;
            let order = cursor.seek(o_id);
            self.findings.check(
                Rule::References,
                order.is_some(),
                format_args!("new order {:?} has no order", (w_id, d_id, o_id)),
            );
            if let Some(order) = order {
                order.is_new = true;
            }
        }
        Ok(())
    }

    fn merge_order_lines(
        &mut self,
        w_id: u16,
        d_id: u8,
        orders: &mut [OrderSums],
        sums: &mut DistrictSums,
    ) -> Result<(), Failure> {
        let Survey { snapshot, tables, parameters, .. } = *self;
        let loaded = parameters.scale.orders_per_district;
        let mut cursor = Cursor::new(orders);
        for line in snapshot.prefix(&tables.order_line, &(w_id, d_id)) {
            let line = line?;
            sums.lines += 1;
            let order = cursor.seek(line.ol_o_id);
            let stock = self.stock_at(line.ol_supply_w_id, line.ol_i_id);
            self.findings.check(
                Rule::References,
                order.is_some() && stock.is_some(),
                format_args!("an order line refers to a row that does not exist: {line:?}"),
            );
            if let Some(order) = order {
                order.lines += 1;
                let delivered = line.ol_delivery_d.is_some();
                if delivered {
                    order.delivered += line.ol_amount;
                }
                self.findings.check_equal(
                    Rule::Condition7,
                    format_args!("order line {:?}", (w_id, d_id, line.ol_o_id, line.ol_number)),
                    ("whether OL_DELIVERY_D is null", !delivered),
                    ("whether O_CARRIER_ID is null", !order.has_carrier),
                );
            }
            if let Some(stock) = stock.filter(|_| line.ol_o_id > loaded) {
                let stock = &mut self.stock[stock];
                stock.lines += 1;
                stock.remote_lines += u32::from(line.ol_supply_w_id != w_id);
                stock.quantity += u64::from(line.ol_quantity);
            }
        }
        Ok(())
    }

    fn compare_order(&mut self, w_id: u16, d_id: u8, order: &OrderSums) {
        let id = (w_id, d_id, order.o_id);
        self.findings.check_equal(
            Rule::Condition5,
            format_args!("order {id:?}"),
            ("whether O_CARRIER_ID is null", !order.has_carrier),
            ("whether it is in NEW-ORDER", order.is_new),
        );
        self.findings.check_equal(
            Rule::Condition6,
            format_args!("order {id:?}"),
            ("O_OL_CNT", order.expected_lines),
            ("count(ORDER-LINE)", order.lines),
        );
    }

    /// Reads a district's customers through the index by name, and their orders through the index by customer.
    fn read_indexes(&mut self, w_id: u16, d_id: u8) -> Result<(), Failure> {
        let Survey { snapshot, tables, parameters, .. } = *self;
        let count = parameters.scale.customers_per_district;
        let customers = snapshot.prefix_by(&tables.customer, Customer::BY_NAME, &(w_id, d_id));
        let by_name = customers
            .map(|row| row.map(|row| (row.c_last, row.c_first, row.c_id)))
            .collect::<Result<Vec<_>, _>>()?;
        compare_names(&mut self.findings, (w_id, d_id), &by_name, count);

        for c_id in 1..=count {
            let key = (w_id, d_id, c_id);
            let orders = snapshot.prefix_by(&tables.order, Order::BY_CUSTOMER, &key);
            let orders =
                orders.map(|order| Ok(order?.o_id)).collect::<Result<Vec<u32>, Failure>>()?;
            let customer = self.customer_at(w_id, d_id, c_id).expect("within the range");
            let expected = self.customers[customer].orders;
            compare_orders_of(&mut self.findings, key, &orders, expected);
        }
        Ok(())
    }

    fn read_customers(&mut self, w_id: u16, d_id: u8) -> Result<(), Failure> {
        let Survey { snapshot, tables, parameters, .. } = *self;
        let count = parameters.scale.customers_per_district;
        let district = self.district_at(w_id, d_id).expect("the district exists");
        walk::keys(
            snapshot,
            &tables.customer,
            (1..=count).map(|c_id| (w_id, d_id, c_id)),
            |id, row| {
                let violation = format_args!("customer {id:?} is missing");
                self.findings.check(Rule::References, row.is_some(), violation);
                let Some(row) = row else { return };
                self.districts[district].deliveries += u64::from(row.c_delivery_cnt);
                let at = self.customer_at(w_id, d_id, id.2).expect("within the range");
                let sums = &self.customers[at];
                self.findings.check_equal(
                    Rule::Condition10,
                    format_args!("customer {id:?}, in cents"),
                    ("C_BALANCE", row.c_balance),
                    ("delivered OL_AMOUNT - H_AMOUNT", sums.delivered - sums.paid),
                );
                self.findings.check_equal(
                    Rule::Condition12,
                    format_args!("customer {id:?}, in cents"),
                    ("C_BALANCE + C_YTD_PAYMENT", row.c_balance + row.c_ytd_payment),
                    ("delivered OL_AMOUNT", sums.delivered),
                );
                self.findings.check_equal(
                    Rule::PaymentsCounted,
                    format_args!("customer {id:?}"),
                    ("C_PAYMENT_CNT", row.c_payment_cnt),
                    ("count(HISTORY)", sums.payments),
                );
            },
        )?;
        self.done(count.into());
        Ok(())
    }

    fn read_stock(&mut self, w_id: u16) -> Result<(), Failure> {
        let Survey { snapshot, tables, parameters, .. } = *self;
        let items = parameters.scale.items;
        walk::keys(snapshot, &tables.stock, (1..=items).map(|i_id| (w_id, i_id)), |id, row| {
            let violation = format_args!("stock {id:?} is missing");
            self.findings.check(Rule::References, row.is_some(), violation);
            let Some(row) = row else { return };
            let at = self.stock_at(w_id, id.1).expect("within the range");
            let sums = &self.stock[at];
            let sides = [
                ("S_ORDER_CNT", row.s_order_cnt.into(), "number of lines", sums.lines.into()),
                ("S_REMOTE_CNT", row.s_remote_cnt.into(), "remote lines", sums.remote_lines.into()),
                ("S_YTD", row.s_ytd, "quantity of the lines", sums.quantity),
            ];
            for (column, value, lines_name, lines) in sides {
                self.findings.check_equal(
                    Rule::StockCounted,
                    format_args!("stock {id:?}"),
                    (column, value),
                    (lines_name, lines),
                );
            }
        })?;
        self.done(items.into());
        Ok(())
    }

    fn compare_districts(&mut self) {
        let delivered_by_load = u64::from(self.parameters.scale.delivered_per_district());
        for ((w_id, d_id), sums) in self.parameters.districts().zip(&self.districts) {
            let findings = &mut self.findings;
            let last_used = sums.next_o_id.saturating_sub(1);
            findings.check_equal(
                Rule::Condition2,
                format_args!("warehouse {w_id}, district {d_id}"),
                ("D_NEXT_O_ID - 1", last_used),
                ("max(O_ID)", sums.last_order),
            );
            if sums.new_orders > 0 {
                findings.check_equal(
                    Rule::Condition2,
                    format_args!("warehouse {w_id}, district {d_id}"),
                    ("D_NEXT_O_ID - 1", last_used),
                    ("max(NO_O_ID)", sums.last_new_order),
                );
                findings.check_equal(
                    Rule::Condition3,
                    format_args!("warehouse {w_id}, district {d_id}"),
                    (
                        "max(NO_O_ID) - min(NO_O_ID) + 1",
                        u64::from(sums.last_new_order - sums.first_new_order) + 1,
                    ),
                    ("count(NEW-ORDER)", sums.new_orders),
                );
            }
            findings.check_equal(
                Rule::Condition4,
                format_args!("warehouse {w_id}, district {d_id}"),
                ("sum(O_OL_CNT)", sums.expected_lines),
                ("count(ORDER-LINE)", sums.lines),
            );
            findings.check_equal(
                Rule::Condition9,
                format_args!("warehouse {w_id}, district {d_id}, in cents"),
                ("D_YTD", sums.ytd),
                ("sum(H_AMOUNT)", sums.paid),
            );
            findings.check_equal(
                Rule::Condition11,
                format_args!("warehouse {w_id}, district {d_id}"),
                ("count(ORDER)", sums.orders),
                (
                    "count(NEW-ORDER) + orders delivered",
                    sums.new_orders + delivered_by_load + sums.deliveries,
                ),
            );
            findings.check_equal(
                Rule::OrdersCounted,
                format_args!("warehouse {w_id}, district {d_id}"),
                ("count(ORDER)", sums.orders),
                ("D_NEXT_O_ID - 1", last_used.into()),
            );
        }
    }

    fn compare_warehouses(&mut self) {
        for (w_id, sums) in (1..).zip(&self.warehouses) {
            let w_id: u16 = w_id;
            self.findings.check_equal(
                Rule::Condition1,
                format_args!("warehouse {w_id}, in cents"),
                ("W_YTD", sums.ytd),
                ("sum(D_YTD)", sums.districts_ytd),
            );
            self.findings.check_equal(
                Rule::Condition8,
                format_args!("warehouse {w_id}, in cents"),
                ("W_YTD", sums.ytd),
                ("sum(H_AMOUNT)", sums.paid),
            );
        }
    }
}

/// Compares the customers that the index by name returned for a district with the district's number of customers.
pub(super) fn compare_names<N: Ord>(
    findings: &mut Findings,
    (w_id, d_id): (u16, u8),
    by_name: &[N],
    customers: u32,
) {
    findings.check_equal(
        Rule::Indexes,
        format_args!("warehouse {w_id}, district {d_id}"),
        ("number of customers by name", by_name.len()),
        ("count(CUSTOMER)", customers as usize),
    );
    findings.check(
        Rule::Indexes,
        by_name.is_sorted_by(|name, next| name < next),
        format_args!("warehouse {w_id}, district {d_id}: the index by name is out of order"),
    );
}

/// Compares the orders that the index by customer returned with the number of the customer's orders.
pub(super) fn compare_orders_of(
    findings: &mut Findings,
    customer: (u16, u8, u32),
    orders: &[u32],
    expected: u32,
) {
    findings.check_equal(
        Rule::Indexes,
        format_args!("customer {customer:?}"),
        ("number of orders by customer", orders.len()),
        ("count(ORDER)", expected as usize),
    );
    findings.check(
        Rule::Indexes,
        orders.is_sorted_by(|order, next| order < next),
        format_args!("customer {customer:?}: the index by customer is out of order"),
    );
}

/// Returns the position of a number that is counted from 1, or `None` if it is 0 or greater than `count`.
fn position(number: u32, count: u32) -> Option<usize> {
    number.checked_sub(1).filter(|&position| position < count).map(|position| position as usize)
}

/// Returns an estimate of the number of rows that hold a district's orders and their lines.
fn rows_of_orders(district: &DistrictSums) -> u64 {
    let lines_mean = (5 + LINES_MAX as u64) / 2;
    u64::from(district.next_o_id.saturating_sub(1)) * (1 + lines_mean)
}

/// Walks through a district's orders in step with rows that are also sorted by order number.
struct Cursor<'a> {
    orders: &'a mut [OrderSums],
    position: usize,
}

impl<'a> Cursor<'a> {
    fn new(orders: &'a mut [OrderSums]) -> Self {
        Cursor { orders, position: 0 }
    }

    /// Returns the order with number `o_id`, which must not be smaller than that of the previous call.
    fn seek(&mut self, o_id: u32) -> Option<&mut OrderSums> {
        while self.orders.get(self.position).is_some_and(|order| order.o_id < o_id) {
            self.position += 1;
        }
        self.orders.get_mut(self.position).filter(|order| order.o_id == o_id)
    }
}
