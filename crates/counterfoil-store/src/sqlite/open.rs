//! Opening a ledger file: is it one, can it be written, and if not, precisely why.

use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::Options;
use super::held::Held;
use super::schema::{self, APPLICATION_ID, FORMAT};
use crate::OpenError;

/// 3.51.3 mended a race that could damage a database in WAL mode (sqlite.org/wal.html#walresetbug).
const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// Of a new ledger; one that is there keeps its own. Records are appended, so a page costs its way to the disk and not its size: four times as large
/// is a third less of the kernel's time for an effect at a thousand callers. One caller alone writes a page for each record, though, so not larger still.
pub const PAGE_BYTES: u32 = 16 << 10;

/// Holds the index of a million streams, in which each new stream is looked for. Larger is slower: at each commit
/// SQLite may walk over every cached page until the file has 1 GiB.
const WRITER_CACHE_KIB: i64 = 32 << 10;
const READER_CACHE_KIB: i64 = 4 << 10;
/// It copies pages past its cache.
const COPIER_CACHE_KIB: i64 = 256;

/// The connection that writes. Makes the ledger when there is no file yet, or an empty one.
pub fn writer(path: &Path, options: &Options) -> Result<(Held, Connection), OpenError> {
    assert!(rusqlite::version_number() >= SQLITE_VERSION_MIN, "SQLite {} is too old to be safe", rusqlite::version());
    check_place(path)?;
    let held = Held::after(path, || check_mark(path))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || -> rusqlite::Result<Result<Connection, OpenError>> {
        let mut conn = Connection::open_with_flags(path, flags)?;
        if conn.is_readonly("main")? {
            let message = "the file or its file system is read-only".into();
            return Ok(Err(OpenError::ReadOnly { path: path.into(), message }));
        }
        configure(&conn, options, WRITER_CACHE_KIB)?;
        if let Err(refusal) = make_ledger(&mut conn, path)? {
            return Ok(Err(refusal));
        }
        use_wal(&conn, options.busy_timeout)?;
        Ok(Ok(conn))
    };
    let conn = open().map_err(|error| explain(path, &error))??;
    Ok((held, conn))
}

/// A connection that reads; the writer's is open already.
pub fn reader(path: &Path, options: &Options) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || {
        let conn = Connection::open_with_flags(path, flags)?;
        configure(&conn, options, READER_CACHE_KIB)?;
        Ok(conn)
    };
    open().map_err(|error: rusqlite::Error| explain(path, &error))
}

/// The connection that copies the log into the database beside the writer; the writer's is open already.
pub fn copier(path: &Path, options: &Options) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    configure(&conn, options, COPIER_CACHE_KIB)?;
    durable(&conn)?;
    Ok(conn)
}

/// What can be said of the path before SQLite sees it.
pub fn check_place(path: &Path) -> Result<(), OpenError> {
    let io = |message: String| OpenError::Io { path: path.into(), message };
    let read_only = |message: &str| OpenError::ReadOnly { path: path.into(), message: message.into() };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match parent.metadata() {
        Ok(parent) if !parent.is_dir() => return Err(io("its parent is not a directory".into())),
        Ok(parent) if no_write_bits(&parent) => return Err(read_only("its directory is read-only")),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(io(format!("the directory {} does not exist; make it first", parent.display())));
        }
        Err(error) => return Err(io(error.to_string())),
    }
    match path.metadata() {
        Ok(file) if file.is_dir() => Err(io("this is a directory; name a file in it".into())),
        Ok(file) if no_write_bits(&file) => Err(read_only("the file is read-only")),
        Ok(_) => writable(path, "this user may not write the file").map_err(read_only),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            writable(parent, "this user may not make a file in its directory").map_err(read_only)
        }
        Err(error) => Err(io(error.to_string())),
    }
}

/// `otherwise`: why not, where it is a matter of rights.
fn writable(path: &Path, otherwise: &'static str) -> Result<(), &'static str> {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).map_err(|error| match error {
        rustix::io::Errno::ROFS => "its file system is read-only",
        _ => otherwise,
    })
}

/// Nobody may write it. Root could all the same, but whoever took the bits away meant it.
fn no_write_bits(file: &Metadata) -> bool {
    file.permissions().readonly()
}

/// Looks at the header without SQLite, which would leave files of its own beside a stranger's database.
fn check_mark(path: &Path) -> Result<(), OpenError> {
    let not_a_ledger = |found: String| Err(OpenError::NotALedger { store: path.display().to_string(), found });
    let mut header = Vec::new();
    match File::open(path).and_then(|file| file.take(100).read_to_end(&mut header)) {
        Ok(_) if header.is_empty() => return Ok(()),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(OpenError::Io { path: path.into(), message: error.to_string() }),
    }
    if header.len() < 100 || !header.starts_with(b"SQLite format 3\0") {
        let text = std::str::from_utf8(&header).is_ok_and(|text| !text.contains('\0'));
        return not_a_ledger(if text { "it is a text file".into() } else { "it is not an SQLite database".into() });
    }
    let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    check_numbers(path, number(68), number(60))
}

fn check_numbers(path: &Path, application: u32, format: u32) -> Result<(), OpenError> {
    match (application, format) {
        (APPLICATION_ID, FORMAT) => Ok(()),
        (APPLICATION_ID, found) => Err(OpenError::TooNew { store: path.display().to_string(), found, supported: FORMAT }),
        (0, _) => Err(OpenError::NotALedger { store: path.display().to_string(), found: "it is another SQLite database".into() }),
        (other, _) => {
            let found = format!("it is another SQLite database, with application id {other:#x}");
            Err(OpenError::NotALedger { store: path.display().to_string(), found })
        }
    }
}

fn configure(conn: &Connection, options: &Options, cache_kib: i64) -> rusqlite::Result<()> {
    // Without QPSG, a build with STAT4 prepares a statement again for each new binding.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    conn.busy_timeout(options.busy_timeout)?;
    conn.set_prepared_statement_cache_capacity(64);
    conn.pragma_update(None, "page_size", PAGE_BYTES)?;
    conn.pragma_update(None, "cache_size", -cache_kib)?;
    // What is moved or deleted leaves no copy behind in its page, as far as that costs no write of its own: see `Graves::erase`.
    conn.pragma_update(None, "secure_delete", "FAST")?;
    // Readers turn it on for themselves while nobody writes.
    conn.pragma_update(None, "mmap_size", 0)?;
    conn.pragma_update(None, "temp_store", "MEMORY")
}

/// In one transaction, before WAL is turned on: a crash leaves an empty file or a ledger.
fn make_ledger(conn: &mut Connection, path: &Path) -> rusqlite::Result<Result<(), OpenError>> {
    // A ledger is opened without the write lock, which another process may hold for a while.
    if numbers(conn)? == (APPLICATION_ID, FORMAT) {
        return Ok(Ok(()));
    }
    conn.pragma_update(None, "synchronous", "FULL")?;
    let transaction = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let (application, format) = numbers(&transaction)?;
    let tables: i64 = transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if (application, format, tables) == (0, 0, 0) {
        schema::create(&transaction)?;
    } else if let Err(refusal) = check_numbers(path, application, format) {
        return Ok(Err(refusal));
    }
    transaction.commit().map(Ok)
}

fn numbers(conn: &Connection) -> rusqlite::Result<(u32, u32)> {
    let number = |name: &str| conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    Ok((number("application_id")? as u32, number("user_version")? as u32))
}

fn use_wal(conn: &Connection, patience: Duration) -> rusqlite::Result<()> {
    // Turning WAL on does not wait for others who are just opening the same new file; so it is asked again.
    let began = Instant::now();
    loop {
        match conn.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0)) {
            Ok(mode) if mode == "wal" => break,
            Err(error) if error.sqlite_error_code() != Some(ErrorCode::DatabaseBusy) => return Err(error),
            other if began.elapsed() > patience => return other.and(Err(rusqlite::Error::InvalidQuery)),
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    durable(conn)
}

/// Each commit and each checkpoint is flushed, and checkpoints come when they are asked for.
fn durable(conn: &Connection) -> rusqlite::Result<()> {
    conn.pragma_update(None, "synchronous", "FULL")?;
    #[cfg(target_vendor = "apple")]
    conn.pragma_update(None, "fullfsync", true)?;
    conn.pragma_update(None, "wal_autocheckpoint", 0)
}

pub fn explain(path: &Path, error: &rusqlite::Error) -> OpenError {
    let (path, message) = (path.to_owned(), super::fault::words(error));
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => {
            OpenError::NotALedger { store: path.display().to_string(), found: "it is not an SQLite database".into() }
        }
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => OpenError::ReadOnly { path, message },
        Some(ErrorCode::DatabaseCorrupt) => super::fault::refused_ref(error).into(),
        _ => OpenError::Io { path, message },
    }
}
