//! The dashboard for Grafana.

use std::collections::BTreeSet;

use serde_json::Value;
use weft_inspect::metric_names;

const DASHBOARD: &str = include_str!("../../../../docs/grafana-dashboard.json");

/// Collects the queries of all panels.
fn collect_queries<'v>(value: &'v Value, queries: &mut Vec<&'v str>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(query) if name == "expr" || name == "definition" => {
                        queries.push(query)
                    }
                    _ => collect_queries(value, queries),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect_queries(value, queries)),
        _ => {}
    }
}

#[test]
fn the_queries_name_only_metrics_that_exist() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut queries = Vec::new();
    collect_queries(&dashboard, &mut queries);
    let names: BTreeSet<_> = metric_names().into_iter().collect();
    let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let mut used = BTreeSet::new();
    for query in &queries {
        let words = query.split(|character| !is_name(character));
        for word in words.filter(|word| word.starts_with("weft_")) {
            assert!(names.contains(word), "{word} in {query} is no metric");
            used.insert(word);
        }
    }
    assert!(used.len() > 20, "{used:?}");
}
