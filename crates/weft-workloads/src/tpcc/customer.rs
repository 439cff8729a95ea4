//! How Payment and Order-Status find their customer: by number or by last name (clauses 2.5.1.2
//! and 2.6.1.2).

use super::client::Client;
use super::random::last_name;
use super::schema::NAME_BYTES_MAX;
use arrayvec::ArrayString;

/// What the user knows of the customer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// C_ID.
    Number(u32),
    /// C_LAST.
    LastName(ArrayString<NAME_BYTES_MAX>),
}

impl Selector {
    /// The last name in 60 % of all cases, the number in the others.
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

/// Of the customers of a district who bear a name, sorted by first name, the one that is meant (clause
/// 2.5.2.2, case 2): the one in position n / 2, rounded up.
#[inline]
pub(super) fn middle(found: &[u32]) -> u32 {
    found[found.len().div_ceil(2) - 1]
}
