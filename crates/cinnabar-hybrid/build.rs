//! Compiles the one call that librados has for C++ only.

fn main() {
    println!("cargo::rerun-if-changed=src/librados/shim.cc");
    #[cfg(feature = "ceph")]
    {
        let mut shim = cc::Build::new();
        shim.cpp(true).std("c++17").warnings(true);
        // Ceph's own headers are not free of them.
        shim.flag_if_supported("-Wno-unused-parameter").file("src/librados/shim.cc");
        // Without the headers this is linted and documented all the same; what is linked misses the calls.
        if let Err(error) = shim.try_compile("cinnabar_rados_shim") {
            println!("cargo::warning=no librados for C++ (Debian: libradospp-dev): {error}");
        }
    }
}
