//! What the stores showed when their process ended, for a later one that goes on from there.

use kubefold_sql::{SqlError, Value, params};

use crate::{
    mirror::{Mirror, MirrorError, file::File, kind::is_secret},
    store::Earlier,
};
use kubefold_wire::resource::Gvr;

impl Mirror {
    /// Keeps what is shown of a kind.
    ///
    /// Errors: the database refuses; what was kept before stands.
    pub fn keep_shown(&self, gvr: &Gvr, shown: &Earlier) -> Result<(), MirrorError> {
        let kept = self.file()?.keep_shown(gvr, shown.encode());
        self.noted(kept)
    }

    /// What an earlier process showed of a kind when it ended. `None`: that is not known.
    pub fn shown(&self, gvr: &Gvr) -> Option<Earlier> {
        let shown = self.file().ok()?.shown(gvr);
        Earlier::decode(&self.noted(shown).ok()??)
    }
}

impl File {
    fn keep_shown(&self, gvr: &Gvr, shown: Vec<u8>) -> Result<(), SqlError> {
        let (gvr, key) = (gvr.clone(), self.key.clone().filter(|_| is_secret(gvr)));
        self.write(move |sql| {
            let shown = match key {
                Some(key) => key.seal(&place(&gvr), shown)?,
                None => shown,
            };
            let put = "INSERT INTO shown VALUES (?1, ?2, ?3, ?4)
                ON CONFLICT (\"group\", version, resource) DO UPDATE SET state = excluded.state";
            sql.execute(put, params![&*gvr.group, &*gvr.version, &*gvr.resource, &shown]).map(drop)
        })
    }

    fn shown(&self, gvr: &Gvr) -> Result<Option<Vec<u8>>, SqlError> {
        let words = [Value::from(&*gvr.group), Value::from(&*gvr.version), Value::from(&*gvr.resource)];
        let find = "SELECT state FROM shown WHERE \"group\" = ?1 AND version = ?2 AND resource = ?3";
        let shown: Option<Vec<u8>> = self.database.read(|sql| sql.row(find, &words, |row| row.get(0)))?;
        Ok(match &self.key {
            // What another key has encrypted is none of this one's.
            Some(key) if is_secret(gvr) => shown.and_then(|shown| key.open(&place(gvr), &shown).ok()),
            _ => shown,
        })
    }
}

/// What an encrypted row is bound to.
fn place(gvr: &Gvr) -> String {
    format!("shown/{}/{}", gvr.version, gvr.qualified())
}
