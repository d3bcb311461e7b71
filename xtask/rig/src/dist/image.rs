//! The container image: an OCI image layout in a tar file, with the index that older versions of
//! Docker read.

use super::archive::{Tree, gzip};
use super::{Source, sha256};
use anyhow::Result;
use serde_json::{Value, json};

/// User of the server in a container.
const USER: u64 = 65_532;
/// Media type prefixes of the specification.
const OCI: &str = "application/vnd.oci.image";

/// Returns the image.
pub(super) fn write(source: &Source) -> Result<Vec<u8>> {
    let layer = layer(source)?.tar(source.time)?;
    let packed = gzip(&layer)?;
    let mut archive = Tree::default();
    let mut blob = |bytes: Vec<u8>, kind: &str| {
        let (digest, size) = (sha256(&bytes), bytes.len());
        archive.file(&format!("blobs/sha256/{digest}"), 0o644, bytes);
        let media = format!("{OCI}.{kind}");
        json!({ "mediaType": media, "digest": format!("sha256:{digest}"), "size": size })
    };
    let config = blob(config(source, &sha256(&layer)).to_string().into(), "config.v1+json");
    let layer = blob(packed, "layer.v1.tar+gzip");
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": format!("{OCI}.manifest.v1+json"),
        "config": config,
        "layers": [layer],
    });
    let mut manifest = blob(manifest.to_string().into(), "manifest.v1+json");
    let (name, version) = (format!("upcall:{}", source.version), &source.version);
    manifest["annotations"] = json!({
        "io.containerd.image.name": format!("docker.io/library/{name}"),
        "org.opencontainers.image.ref.name": version,
    });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": format!("{OCI}.index.v1+json"),
        "manifests": [manifest],
    });
    let path = |blob: &Value| {
        blob["digest"].as_str().unwrap_or_default().replace("sha256:", "blobs/sha256/")
    };
    let docker = json!([{ "Config": path(&config), "RepoTags": [name], "Layers": [path(&layer)] }]);
    archive.file("index.json", 0o644, index.to_string().into());
    archive.file("manifest.json", 0o644, docker.to_string().into());
    archive.file("oci-layout", 0o644, json!({ "imageLayoutVersion": "1.0.0" }).to_string().into());
    archive.tar(source.time)
}

/// Returns the files of the image.
fn layer(source: &Source) -> Result<Tree> {
    let mut tree = Tree::default();
    source.add_common(&mut tree)?;
    let user = format!("upcall:x:{USER}:{USER}::/var/lib:/sbin/nologin\n");
    tree.file("etc/passwd", 0o644, user.into());
    tree.file("etc/group", 0o644, format!("upcall:x:{USER}:\n").into());
    for dir in ["srv", "var/cache", "var/lib"] {
        tree.dir(dir, 0o755, USER);
    }
    tree.dir("tmp", 0o1777, 0);
    Ok(tree)
}

/// Returns the configuration of containers; `layer` is the checksum of the uncompressed layer.
fn config(source: &Source, layer: &str) -> Value {
    let created = created(source.time);
    json!({
        "architecture": "amd64",
        "os": "linux",
        "created": created,
        "config": {
            "User": format!("{USER}:{USER}"),
            "Env": ["XDG_CACHE_HOME=/var/cache", "XDG_STATE_HOME=/var/lib"],
            "Entrypoint": ["/usr/bin/upcall"],
            "Cmd": ["serve", "/srv", "--9p", "0.0.0.0:5640", "--http", "0.0.0.0:8080"],
            "WorkingDir": "/srv",
            "ExposedPorts": { "5640/tcp": {}, "8080/tcp": {} },
            "Volumes": { "/srv": {}, "/var/lib": {} },
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.title": "upcall",
                "org.opencontainers.image.version": source.version,
                "org.opencontainers.image.revision": source.commit,
                "org.opencontainers.image.licenses": "Apache-2.0 OR MIT",
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer}")] },
        "history": [{ "created": created, "created_by": "cargo xtask dist" }],
    })
}

/// Returns a time in the format of RFC 3339: days since 1970 as a date of the Gregorian calendar.
fn created(time: u64) -> String {
    let (days, second) = (time / 86_400, time % 86_400);
    // The year begins in March, so that the leap day is its last one; eras have 400 years.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (date, month) = (day - (153 * month + 2) / 5 + 1, (month + 2) % 12 + 1);
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
}

#[cfg(test)]
mod tests {
    use super::super::packaging;
    use super::super::tests::source;
    use super::*;

    #[test]
    fn times_are_dates() {
        assert_eq!(created(0), "1970-01-01T00:00:00Z");
        assert_eq!(created(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(created(1_700_000_000), "2023-11-14T22:13:20Z");
        assert_eq!(created(1_704_067_199), "2023-12-31T23:59:59Z");
    }

    #[test]
    fn the_dockerfile_makes_the_same_container() {
        let file = String::from_utf8(packaging("Dockerfile").expect("a file")).expect("text");
        let config = &config(&source(), "")["config"];
        let line = |word: &str| {
            let lines = file.lines().rev();
            let line = lines.filter_map(|line| line.strip_prefix(word)).next().expect(word);
            line.trim().to_owned()
        };
        let list = |word: &str| serde_json::from_str::<Value>(&line(word)).expect("a list");
        assert_eq!(list("ENTRYPOINT "), config["Entrypoint"]);
        assert_eq!(list("CMD "), config["Cmd"]);
        assert_eq!(line("USER "), config["User"]);
        assert_eq!(line("WORKDIR "), config["WorkingDir"]);
        assert_eq!(line("STOPSIGNAL "), config["StopSignal"]);
        let keys = |value: &Value| {
            let object = value.as_object().expect("an object");
            object.keys().cloned().collect::<Vec<_>>()
        };
        assert_eq!(line("EXPOSE ").split(' ').collect::<Vec<_>>(), keys(&config["ExposedPorts"]));
        assert_eq!(list("VOLUME "), json!(keys(&config["Volumes"])));
        let environment: Vec<_> = line("ENV ").split(' ').map(str::to_owned).collect();
        assert_eq!(json!(environment), config["Env"]);
    }

    #[test]
    fn an_image_is_unpacked_as_it_was_packed_and_a_changed_blob_is_refused() {
        if !rustix::process::geteuid().is_root() {
            base::skip("files of other users are made by root");
            return;
        }
        let to = std::env::temp_dir().join(format!("upcall-image-{}", std::process::id()));
        std::fs::create_dir(&to).expect("a new directory");
        let mut image = write(&source()).expect("an image");
        let config = super::super::unpack(&image, &to).expect("it is whole");
        assert_eq!(config["architecture"], "amd64");
        assert_eq!(std::fs::read(to.join("usr/bin/upcall")).expect("the program"), b"\x7fELF");
        let at = image.windows(5).position(|window| window == b"amd64").expect("the configuration");
        image[at + 3] = b'5';
        let error = super::super::unpack(&image, &to).expect_err("changed");
        assert!(error.to_string().contains("has other contents"), "{error:#}");
        std::fs::remove_dir_all(to).expect("it is there");
    }
}
