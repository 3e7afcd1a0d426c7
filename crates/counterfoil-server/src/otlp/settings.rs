//! Where spans go, by the environment variables that OpenTelemetry names.

/// Where spans go, and as whose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The whole address, `/v1/traces` included.
    pub url: String,
    pub service_name: String,
    pub headers: Vec<(String, String)>,
}

impl Settings {
    /// `endpoint` is the collector's base address, e.g. `http://localhost:4318`.
    pub fn new(endpoint: &str, service_name: &str) -> Self {
        let url = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
        Self { url, service_name: service_name.into(), headers: Vec::new() }
    }

    /// From the environment; `None` where no endpoint is set there, or the SDK is switched off.
    pub fn from_env(service_name: &str) -> Option<Self> {
        Self::from_variables(service_name, |name| std::env::var(name).ok())
    }

    fn from_variables(service_name: &str, read: impl Fn(&str) -> Option<String>) -> Option<Self> {
        // An empty variable is an unset one.
        let read = |name: &str| read(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let off = read("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        if off || read("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none") {
            return None;
        }
        let service_name = read("OTEL_SERVICE_NAME").unwrap_or_else(|| service_name.to_owned());
        let headers = read("OTEL_EXPORTER_OTLP_TRACES_HEADERS").or_else(|| read("OTEL_EXPORTER_OTLP_HEADERS"));
        let headers = headers.map_or_else(Vec::new, |text| pairs(&text));
        if let Some(url) = read("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") {
            return Some(Self { url, service_name, headers });
        }
        let endpoint = read("OTEL_EXPORTER_OTLP_ENDPOINT")?;
        Some(Self { headers, ..Self::new(&endpoint, &service_name) })
    }
}

/// `api-key=abc,other=a%20b`.
fn pairs(text: &str) -> Vec<(String, String)> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.trim().to_owned(), decoded(value.trim()))).collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| byte == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        match digits.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(meant) => {
                bytes.push(meant);
                rest = &after[2..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_environment_says() {
        let check = |variables: &[(&str, &str)], expected: Option<(&str, &str)>| {
            let read = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            let found = Settings::from_variables("counterfoil", read);
            assert_eq!(found.as_ref().map(|s| (s.url.as_str(), s.service_name.as_str())), expected, "{variables:?}");
        };
        const BASE: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");
        let whole = Some(("http://collector:4318/v1/traces", "counterfoil"));
        check(&[], None);
        check(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")], None);
        check(&[BASE], whole);
        check(&[BASE, ("OTEL_SERVICE_NAME", "shop")], Some(("http://collector:4318/v1/traces", "shop")));
        check(&[BASE, ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t/x")], Some(("http://t/x", "counterfoil")));
        check(&[BASE, ("OTEL_SDK_DISABLED", "TRUE")], None);
        check(&[BASE, ("OTEL_TRACES_EXPORTER", "none")], None);
        check(&[BASE, ("OTEL_TRACES_EXPORTER", "otlp")], whole);
    }

    #[test]
    fn headers_are_pairs_with_encoded_values() {
        let expected = [("api-key", "a b"), ("x", "100%"), ("y", "=")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(pairs("api-key=a%20b, x = 100% ,nonsense,y=%3D"), expected);
    }
}
