//! Volumes that can't go over, servers that take few clients, and daemons that are not the peer.

use super::*;
use cinnabar_backend::hybrid::manage;
use cinnabar_backend::spec::{BackendSpec, Place};

#[test]
fn a_hybrid_volume_stays_and_is_served_whatever_was_recorded_of_it() {
    let mut host = Host::new(IoMode::Auto);
    let (fast, slow) = (host.rig.path("fast"), host.rig.path("slow"));
    let mut volume = host.rig.volume("vm1");
    volume.backend = format!("hybrid:fast={},slow={}", fast.display(), slow.display());
    let spec = BackendSpec::parse(&volume.backend, Path::new("/")).expect("two folders");
    let Place::Hybrid(spec) = spec.place else { panic!("{spec:?}") };
    manage::create(&spec, SIZE, 1 << 20, SIZE / 2).expect("it is made");
    host.rig.config.volumes.push(volume);
    // As an earlier release has left it.
    let moves = host.rig.path("state/moves");
    std::fs::create_dir_all(&moves).expect("a folder");
    let kept = "cinnabar migration 1\nepoch 1\nowned 1\nother 0\npeer b:1\ntoken_file /t\n";
    std::fs::write(moves.join("vm1.moves"), kept).expect("it is written");
    host.start();
    let status = host.rig.status();
    assert_eq!(status.volumes[0].state, State::Serving, "{:?}", status.volumes[0].reason);
    assert!(status.volumes[0].migration.is_none());
    let (name, peer) = ("vm1".to_owned(), host.peer());
    let refused = host.rig.ask(|answer| Message::MigrateOut { name, peer, answer });
    let refused = refused.expect_err("no other host can read it");
    assert_eq!(refused.kind, CommandErrorKind::Invalid);
    assert!(refused.message.contains("hybrid") && !refused.hint.is_empty(), "{refused:?}");
    host.client().write(0, &[1; 4096], true).expect("it is served");
    host.stop();
}

#[test]
fn a_host_that_cannot_stand_by_serves_on() {
    both(|io| {
        let (mut a, mut b) = two(io);
        out(&a, &b);
        let mut model = Model::new();
        let (mut at_a, mut at_b) = (a.client(), b.client());
        model.write(&mut at_a, 0, 65536, 1, false);
        model.check(&mut at_a, "the owner");
        // Its path is gone, which the open files do not notice.
        std::fs::rename(a.rig.path("vm1.raw"), a.rig.path("away")).expect("it is there");
        for round in 0..3 {
            let refused = b.take(false).expect_err("it stays there");
            assert!(refused.message.contains("standby"), "{refused:?}");
            model.check(&mut at_a, "the owner still");
            model.write(&mut at_a, 8192 * round, 4096, 2 + round, true);
            assert_eq!(a.migration().role, MigrationRole::Owner);
        }
        std::fs::rename(a.rig.path("away"), a.rig.path("vm1.raw")).expect("it comes back");
        b.take(false).expect("nothing is in the way");
        model.check(&mut at_b, "the new owner");
        model.check(&mut at_a, "the new standby");
        drop((at_a, at_b));
        a.stop();
        b.stop();
        assert!(std::fs::read(a.rig.path("vm1.raw")).expect("the file") == model.0);
    });
}
