//! A request as bytes: right by default, and changed one thing at a time. Checks nothing, on purpose.

#[derive(Debug, Clone)]
pub struct Request {
    method: String,
    target: Vec<u8>,
    version: String,
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    body: Option<Vec<u8>>,
}

impl Request {
    pub fn new(method: &str, target: &str) -> Self {
        Self { method: method.into(), target: target.into(), version: "HTTP/1.1".into(), headers: Vec::new(), body: None }
    }

    pub fn method(mut self, method: &str) -> Self {
        self.method = method.into();
        self
    }

    pub fn target(mut self, target: impl Into<Vec<u8>>) -> Self {
        self.target = target.into();
        self
    }

    pub fn version(mut self, version: &str) -> Self {
        self.version = version.into();
        self
    }

    /// Adds one, whatever is there.
    pub fn header(mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.as_ref().to_vec(), value.as_ref().to_vec()));
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(other, _)| !other.eq_ignore_ascii_case(name.as_bytes()));
        self
    }

    pub fn set(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.without(name).header(name, value)
    }

    /// With its true length, and as JSON, whether it is or not.
    pub fn json(self, body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref().to_vec();
        let mut request = self.set("Content-Type", "application/json").set("Content-Length", body.len().to_string());
        request.body = Some(body);
        request
    }

    /// As it stands: lengths and encodings are the caller's.
    pub fn body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = Some(body.as_ref().to_vec());
        self
    }

    pub fn bytes(self) -> Vec<u8> {
        let mut raw = [self.method.as_bytes(), b" ", &self.target, b" ", self.version.as_bytes(), b"\r\n"].concat();
        for (name, value) in &self.headers {
            raw.extend([name, b": ".as_slice(), value, b"\r\n"].concat());
        }
        raw.extend(b"\r\n");
        raw.extend(self.body.unwrap_or_default());
        raw
    }
}
