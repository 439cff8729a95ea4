//! The selection of a customer by Payment and Order-Status: by number or by last name (clauses 2.5.1.2 and
//! 2.6.1.2).

use super::client::Client;
use super::random::last_name;
use super::schema::NAME_BYTES_MAX;
use arrayvec::ArrayString;

/// What the user knows about the customer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// C_ID.
    Number(u32),
    /// C_LAST.
    LastName(ArrayString<NAME_BYTES_MAX>),
}

impl Selector {
    /// Draws the last name with a probability of 60 %, else the number.
    #[inline]
    pub(super) fn draw(client: &mut Client) -> Selector {
        if client.random.chance(60) {
            let names = client.scale.last_names();
            let constant = client.constants.last_name_run;
            Selector::LastName(last_name(client.random.last_name_number(constant, names)))
        } else {
            Selector::Number(client.draw_customer())
        }
    }
}

/// Returns the customer that is meant by a last name (clause 2.5.2.2, case 2). `found` holds the customers of the
/// district with that name, sorted by first name. The result is the one in position n / 2, rounded up.
#[inline]
pub(super) fn middle(found: &[u32]) -> u32 {
    found[found.len().div_ceil(2) - 1]
}
