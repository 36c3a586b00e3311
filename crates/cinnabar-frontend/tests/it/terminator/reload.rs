//! Certificates that are replaced while the daemon serves.

use crate::terminator::authority::{Authority, Valid, client, install};
use crate::terminator::nbd::{ACK, World, go};
use cinnabar_frontend::tls::{Files, Tls, TlsError};
use std::fs::{Permissions, set_permissions, write};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

/// Whether a client that trusts `authority` gets in.
fn enters(world: &World, authority: &Authority, signer: &Authority) -> bool {
    let own = signer.sign("host-a", false, Valid::Now);
    let mut stream = world.secure(client(authority, Some(&own)));
    go(&mut stream).is_ok_and(|(kind, _)| kind == ACK)
}

#[test]
fn another_certificate_is_taken_when_it_comes_and_open_sessions_go_on() {
    let world = World::new(&[]);
    let old = &world.authority;
    let own = old.sign("host-a", false, Valid::Now);
    let mut open = world.secure(client(old, Some(&own)));
    assert_eq!(go(&mut open).expect("an answer").0, ACK);
    let new = Authority::new();
    assert!(!enters(&world, &new, &new));
    install(world.folder.path(), &new.sign("cache.example", true, Valid::Now), &new);
    let until = Instant::now() + Duration::from_secs(20);
    while !enters(&world, &new, &new) {
        assert!(Instant::now() < until, "the new certificate is not taken");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(!enters(&world, &new, old), "clients of the old authority are out");
    crate::terminator::nbd::write(&mut open, 0, &[3; 4096])
        .expect("a session that was open goes on");
}

#[test]
fn a_certificate_that_will_not_do_changes_nothing() {
    let world = World::new(&[]);
    let (folder, authority) = (world.folder.path(), &world.authority);
    let other = authority.sign("cache.example", true, Valid::Now);
    for (what, spoil) in [
        (
            "expired",
            Box::new(|| {
                install(folder, &authority.sign("cache.example", true, Valid::Past), authority);
            }) as Box<dyn Fn()>,
        ),
        (
            "not valid yet",
            Box::new(|| {
                install(folder, &authority.sign("cache.example", true, Valid::Future), authority);
            }),
        ),
        (
            "can't be read",
            Box::new(|| {
                std::fs::remove_file(folder.join("server.pem")).expect("it is there");
            }),
        ),
        (
            "no certificate",
            Box::new(|| {
                write(folder.join("server.pem"), "half of a certifica").expect("it is ours");
            }),
        ),
        (
            "server.key",
            Box::new(|| {
                install(folder, &authority.sign("cache.example", true, Valid::Now), authority);
                write(folder.join("server.pem"), &other.pem).expect("it is ours");
            }),
        ),
        (
            "mode of the key",
            Box::new(|| {
                install(folder, &other, authority);
                let open = Permissions::from_mode(0o640);
                set_permissions(folder.join("server.key"), open).expect("it is ours");
            }),
        ),
        (
            "no certificate in",
            Box::new(|| {
                install(folder, &other, authority);
                write(folder.join("clients.pem"), "").expect("it is ours");
            }),
        ),
    ] {
        spoil();
        let error = world.tls.reload().expect_err(what);
        assert!(error.to_string().contains(what), "{what}: {error}");
        assert!(!error.hint().is_empty());
        std::thread::sleep(Duration::from_millis(2200));
        assert!(enters(&world, authority, authority), "{what}: the one before it is served");
    }
    install(folder, &other, authority);
    world.tls.reload().expect("they fit");
}

/// To bar the clients of an authority does not wait for the daemon's own certificate.
#[test]
fn an_authority_is_replaced_while_the_certificate_will_not_do() {
    let world = World::new(&[]);
    let (folder, old) = (world.folder.path(), &world.authority);
    let new = Authority::new();
    install(folder, &old.sign("cache.example", true, Valid::Past), &new);
    let signed = |signer: &Authority| {
        let own = signer.sign("host-a", false, Valid::Now);
        let mut stream = world.secure(client(old, Some(&own)));
        go(&mut stream).is_ok_and(|(kind, _)| kind == ACK)
    };
    let until = Instant::now() + Duration::from_secs(20);
    while !signed(&new) {
        assert!(Instant::now() < until, "the new authority is not taken");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(!signed(old), "clients of the old authority are out");
}

#[test]
fn files_are_checked_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new();
    let files = install(folder.path(), &authority.sign("a", true, Valid::Past), &authority);
    Tls::load(files.clone()).expect("an expired one is only warned of: another may come");
    let none = Files { key: folder.path().join("absent"), ..files.clone() };
    assert!(matches!(Tls::load(none), Err(TlsError::Io { .. })));
    let a_folder = Files { certificate: folder.path().to_owned(), ..files.clone() };
    assert!(matches!(Tls::load(a_folder), Err(TlsError::NotAFile(_))));
    let swapped = Files { key: files.certificate.clone(), ..files.clone() };
    assert!(matches!(Tls::load(swapped), Err(TlsError::Nothing { .. })));
    for mode in [0o640, 0o604, 0o660] {
        set_permissions(&files.key, Permissions::from_mode(mode)).expect("it is ours");
        assert!(matches!(Tls::load(files.clone()), Err(TlsError::Mode { .. })), "{mode:o}");
    }
}
