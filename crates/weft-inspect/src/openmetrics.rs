//! The report as text for Prometheus, in the format of OpenMetrics.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::NoLabelSet;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::Report;
use crate::families::{self, Family, Kind};

/// The type of the text, for HTTP.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns the report as text, which ends with the line `# EOF`.
pub fn text(report: &Report) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape(families::of(report))));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)
        .expect("writing to a string succeeds");
    text
}

/// The families of one report.
#[derive(Debug)]
struct Scrape(Vec<Family>);

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for family in self.0.iter().filter(|family| !family.samples.is_empty()) {
            let unit = match family.unit {
                families::Unit::None => None,
                families::Unit::Bytes => Some(&Unit::Bytes),
                families::Unit::Seconds => Some(&Unit::Seconds),
            };
            let metric_type = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
            };
            let mut metrics =
                encoder.encode_descriptor(family.name, family.help, unit, metric_type)?;
            for sample in &family.samples {
                let labels = &*sample.labels;
                let mut metric = metrics.encode_family(&labels)?;
                let value = family.in_unit(sample.value);
                match family.kind {
                    Kind::Counter => metric.encode_counter::<NoLabelSet, f64, u64>(&value, None)?,
                    Kind::Gauge => metric.encode_gauge(&value)?,
                }
            }
        }
        Ok(())
    }
}
