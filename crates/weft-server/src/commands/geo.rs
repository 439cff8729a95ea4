//! Places: sorted sets whose scores are [geohashes](super::geohash).

use super::geohash::{Place, Shape};
use super::sorted_ranges::{store, with_scores};
use super::sorted_sets::{member, zadd};
use crate::call::{Call, Options, is};
use crate::reply::{Reply, Version};
use crate::stop::{Done, texts};
use crate::tables::{Kind, Scored, Text, score_of};

/// Returns how many metres a unit has.
fn unit(argument: &[u8]) -> Done<f64> {
    let units = [("m", 1.0), ("km", 1000.0), ("ft", 0.3048), ("mi", 1609.34)];
    let found = units.iter().find(|(name, _)| is(argument, name));
    Ok(found.ok_or("ERR unsupported unit provided. please use M, KM, FT, MI")?.1)
}

/// Returns the place with these coordinates.
fn place(longitude: &[u8], latitude: &[u8]) -> Done<Place> {
    let (longitude, latitude) = (crate::call::float(longitude)?, crate::call::float(latitude)?);
    Place::new(longitude, latitude).ok_or_else(|| {
        format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}").into()
    })
}

fn place_of(scored: &Scored) -> Place {
    Place::of_score(score_of(scored.score) as u64)
}

/// Returns the place of a member.
fn find(call: &Call<'_>, collection: Option<u64>, name: &[u8]) -> Done<Option<Place>> {
    Ok(member(call, collection, name)?.map(place_of))
}

/// `GEOADD`
pub fn geoadd(call: &Call<'_>, reply: &mut Reply) -> Done {
    let mut options = call.options(2);
    let (mut if_absent, mut if_there) = (false, false);
    loop {
        if options.take("nx") {
            if_absent = true;
        } else if options.take("xx") {
            if_there = true;
        } else if !options.take("ch") {
            break;
        }
    }
    let triples = options.rest();
    let (given, uneven) = triples.as_chunks::<3>();
    if given.is_empty() || !uneven.is_empty() || if_absent && if_there {
        return Err(texts::SYNTAX.into());
    }
    let scores = given.iter().map(|[longitude, latitude, _]| {
        Ok(place(longitude, latitude)?.score().to_string().into_bytes())
    });
    let scores = scores.collect::<Done<Vec<_>>>()?;
    // The options are those of ZADD.
    let mut arguments = call.arguments[..call.len() - triples.len()].to_vec();
    for (score, [.., name]) in scores.iter().zip(given) {
        arguments.extend([&score[..], name]);
    }
    zadd(&Call { arguments: &arguments, ..*call }, reply)
}

/// `GEOPOS`
pub fn geopos(call: &Call<'_>, reply: &mut Reply) -> Done {
    let collection = call.find(&call.key(1), Kind::SortedSet)?;
    reply.array(call.len() - 2);
    for name in call.rest(2) {
        match find(call, collection, name)? {
            Some(place) => write_place(reply, place),
            None => reply.null_array(),
        }
    }
    Ok(())
}

fn write_place(reply: &mut Reply, place: Place) {
    reply.array(2);
    for value in [place.longitude, place.latitude] {
        match reply.version() {
            Version::Three => reply.double(value),
            Version::Two => {
                let text = format!("{value:.17}");
                reply.text(text.trim_end_matches('0').trim_end_matches('.'));
            }
        }
    }
}

/// `GEOHASH`
pub fn geohash(call: &Call<'_>, reply: &mut Reply) -> Done {
    let collection = call.find(&call.key(1), Kind::SortedSet)?;
    reply.array(call.len() - 2);
    for name in call.rest(2) {
        reply.optional(find(call, collection, name)?.map(Place::geohash));
    }
    Ok(())
}

/// `GEODIST`
pub fn geodist(call: &Call<'_>, reply: &mut Reply) -> Done {
    let metres = match call.rest(4) {
        [] => 1.0,
        [name] => unit(name)?,
        _ => return Err(texts::SYNTAX.into()),
    };
    let collection = call.find(&call.key(1), Kind::SortedSet)?;
    let [from, to] =
        [find(call, collection, call.argument(2))?, find(call, collection, call.argument(3))?];
    match from.zip(to) {
        Some((from, to)) => reply.text(format!("{:.4}", from.distance(to) / metres)),
        None => reply.null(),
    }
    Ok(())
}

/// Where a search begins.
enum Middle<'c> {
    Member(&'c [u8]),
    Place(Place),
}

/// What a search is asked for.
#[derive(Default)]
struct Search<'c> {
    middle: Option<Middle<'c>>,
    shape: Option<Shape>,
    /// How many metres the unit of distances has.
    unit: f64,
    with_place: bool,
    with_distance: bool,
    with_score: bool,
    /// Nearest first; `Some(false)` for farthest first.
    ascends: Option<bool>,
    count: Option<usize>,
    /// Whether any places will do, and not only the nearest.
    takes_any: bool,
    /// Whether distances are stored.
    stores_distance: bool,
    /// The key to which the old commands store.
    store: Option<&'c [u8]>,
}

/// A place that was found.
struct Found<'c> {
    name: &'c Text,
    score: u64,
    place: Place,
    distance: f64,
}

/// Returns a length in metres, and how many metres its unit has.
fn lengths<const N: usize>(
    options: &mut Options<'_>,
    texts: [&'static str; 2],
) -> Done<([f64; N], f64)> {
    let mut found = [0.0; N];
    for length in &mut found {
        *length = crate::call::parse_float(options.next()?).ok_or(texts[0])?;
    }
    if found.iter().any(|length| *length < 0.0) {
        return Err(texts[1].into());
    }
    let unit = unit(options.next()?)?;
    Ok((found.map(|length| length * unit), unit))
}

const RADIUS: [&str; 2] = ["ERR need numeric radius", "ERR radius cannot be negative"];
const SIDES: [&str; 2] = ["ERR need numeric width", "ERR height or width cannot be negative"];

impl<'c> Search<'c> {
    /// Reads the options that all searches have. Returns false if the next one is another.
    fn option(&mut self, options: &mut Options<'c>) -> Done<bool> {
        for (word, flag) in [
            ("withcoord", &mut self.with_place),
            ("withdist", &mut self.with_distance),
            ("withhash", &mut self.with_score),
            ("any", &mut self.takes_any),
        ] {
            if options.take(word) {
                *flag = true;
                return Ok(true);
            }
        }
        if options.take("asc") {
            self.ascends = Some(true);
        } else if options.take("desc") {
            self.ascends = Some(false);
        } else if options.take("count") {
            let count = usize::try_from(options.integer()?).ok().filter(|count| *count > 0);
            self.count = Some(count.ok_or("ERR COUNT must be > 0")?);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Reads the arguments of `GEOSEARCH` and `GEOSEARCHSTORE` after the keys.
    fn parse(call: &Call<'c>, position: usize, stores: bool) -> Done<Self> {
        let mut search = Search { unit: 1.0, ..Search::default() };
        let mut options = call.options(position);
        let name = String::from_utf8_lossy(call.argument(0));
        while !options.is_empty() {
            if search.option(&mut options)? {
            } else if search.middle.is_none() && options.take("frommember") {
                search.middle = Some(Middle::Member(options.next()?));
            } else if search.middle.is_none() && options.take("fromlonlat") {
                search.middle = Some(Middle::Place(place(options.next()?, options.next()?)?));
            } else if search.shape.is_none() && options.take("byradius") {
                let ([radius], unit) = lengths(&mut options, RADIUS)?;
                (search.shape, search.unit) = (Some(Shape::Circle(radius)), unit);
            } else if search.shape.is_none() && options.take("bybox") {
                let ([width, height], unit) = lengths(&mut options, SIDES)?;
                (search.shape, search.unit) = (Some(Shape::Box(width, height)), unit);
            } else if stores && options.take("storedist") {
                search.stores_distance = true;
            } else {
                return Err(texts::SYNTAX.into());
            }
        }
        if search.middle.is_none() {
            return Err(format!(
                "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {name}"
            )
            .into());
        }
        if search.shape.is_none() {
            return Err(format!(
                "ERR exactly one of BYRADIUS and BYBOX can be specified for {name}"
            )
            .into());
        }
        if stores && (search.with_distance || search.with_score || search.with_place) {
            return Err(format!(
                "ERR {name} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )
            .into());
        }
        search.check()
    }

    /// Reads the arguments of the old commands, whose middle is known, from the radius on.
    fn parse_old(call: &Call<'c>, middle: Middle<'c>, position: usize, stores: bool) -> Done<Self> {
        let mut options = call.options(position);
        let ([radius], unit) = lengths(&mut options, RADIUS)?;
        let (middle, shape) = (Some(middle), Some(Shape::Circle(radius)));
        let mut search = Search { middle, shape, unit, ..Search::default() };
        while !options.is_empty() {
            if search.option(&mut options)? {
            } else if stores && options.take("store") {
                (search.store, search.stores_distance) = (Some(options.next()?), false);
            } else if stores && options.take("storedist") {
                (search.store, search.stores_distance) = (Some(options.next()?), true);
            } else {
                return Err(texts::SYNTAX.into());
            }
        }
        if search.store.is_some()
            && (search.with_distance || search.with_score || search.with_place)
        {
            return Err("ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options".into());
        }
        search.check()
    }

    fn check(self) -> Done<Self> {
        match self.takes_any && self.count.is_none() {
            true => Err("ERR the ANY argument requires COUNT argument".into()),
            false => Ok(self),
        }
    }

    /// Finds the places in a sorted set.
    fn run(&self, call: &Call<'c>, collection: Option<u64>) -> Done<Vec<Found<'c>>> {
        let Some(collection) = collection else { return Ok(Vec::new()) };
        let (shape, middle) = match (self.shape, &self.middle) {
            (Some(shape), Some(Middle::Place(place))) => (shape, *place),
            (Some(shape), Some(Middle::Member(name))) => {
                let middle = find(call, Some(collection), name)?;
                (shape, middle.ok_or("ERR could not decode requested zset member")?)
            }
            _ => return Err(texts::SYNTAX.into()),
        };
        let enough = self.count.filter(|_| self.takes_any).unwrap_or(usize::MAX);
        let mut found = Vec::new();
        'ranges: for (first, end) in shape.ranges(middle) {
            for scored in with_scores(call, collection, first as f64..end as f64)? {
                let place = place_of(scored);
                if let Some(distance) = shape.takes_in(middle, place) {
                    let score = score_of(scored.score) as u64;
                    found.push(Found { name: &scored.name, score, place, distance });
                    if found.len() >= enough {
                        break 'ranges;
                    }
                }
            }
        }
        // A client that asks for some gets the nearest.
        let ascends = self.ascends.or((self.count.is_some() && !self.takes_any).then_some(true));
        if let Some(ascends) = ascends {
            found.sort_by(|one, other| {
                let order = one.distance.total_cmp(&other.distance);
                if ascends { order } else { order.reverse() }
            });
        }
        found.truncate(self.count.unwrap_or(usize::MAX));
        Ok(found)
    }

    /// Writes what was found.
    fn write(&self, reply: &mut Reply, found: &[Found<'_>]) {
        let details = [self.with_distance, self.with_score, self.with_place];
        let details = details.iter().filter(|with| **with).count();
        reply.array(found.len());
        for found in found {
            if details > 0 {
                reply.array(1 + details);
            }
            reply.text(found.name);
            if self.with_distance {
                reply.text(format!("{:.4}", found.distance / self.unit));
            }
            if self.with_score {
                reply.integer(found.score.cast_signed());
            }
            if self.with_place {
                write_place(reply, found.place);
            }
        }
    }

    /// Replaces the value of a key by what was found.
    fn store(&self, call: &Call<'_>, reply: &mut Reply, to: &[u8], found: &[Found<'_>]) -> Done {
        let score = |found: &Found<'_>| match self.stores_distance {
            true => found.distance / self.unit,
            false => found.score as f64,
        };
        let members: Vec<_> = found.iter().map(|found| (found.name, score(found))).collect();
        store(&Call { arguments: &[call.argument(0), to], ..*call }, reply, &members)
    }
}

/// `GEOSEARCH`
pub fn geosearch(call: &Call<'_>, reply: &mut Reply) -> Done {
    let search = Search::parse(call, 2, false)?;
    let found = search.run(call, call.find(&call.key(1), Kind::SortedSet)?)?;
    search.write(reply, &found);
    Ok(())
}

/// `GEOSEARCHSTORE`
pub fn geosearchstore(call: &Call<'_>, reply: &mut Reply) -> Done {
    let search = Search::parse(call, 3, true)?;
    let found = search.run(call, call.find(&call.key(2), Kind::SortedSet)?)?;
    search.store(call, reply, call.argument(1), &found)
}

fn old<'c>(
    call: &Call<'c>,
    reply: &mut Reply,
    middle: impl FnOnce() -> Done<Middle<'c>>,
    position: usize,
    stores: bool,
) -> Done {
    let collection = call.find(&call.key(1), Kind::SortedSet)?;
    let search = Search::parse_old(call, middle()?, position, stores)?;
    let found = search.run(call, collection)?;
    match search.store {
        Some(to) => {
            call.effects.name_event("georadiusstore");
            search.store(call, reply, to, &found)
        }
        None => {
            search.write(reply, &found);
            Ok(())
        }
    }
}

/// `GEORADIUS`
pub fn georadius(call: &Call<'_>, reply: &mut Reply) -> Done {
    let middle = || Ok(Middle::Place(place(call.argument(2), call.argument(3))?));
    old(call, reply, middle, 4, true)
}

/// `GEORADIUS_RO`
pub fn georadius_ro(call: &Call<'_>, reply: &mut Reply) -> Done {
    let middle = || Ok(Middle::Place(place(call.argument(2), call.argument(3))?));
    old(call, reply, middle, 4, false)
}

/// `GEORADIUSBYMEMBER`
pub fn georadiusbymember(call: &Call<'_>, reply: &mut Reply) -> Done {
    old(call, reply, || Ok(Middle::Member(call.argument(2))), 3, true)
}

/// `GEORADIUSBYMEMBER_RO`
pub fn georadiusbymember_ro(call: &Call<'_>, reply: &mut Reply) -> Done {
    old(call, reply, || Ok(Middle::Member(call.argument(2))), 3, false)
}
