//! Compiles the kubelet's wire contracts with protox, so that no `protoc` is needed.

const PROTOS: &[&str] =
    &["proto/pluginregistration/v1/api.proto", "proto/dra/v1/api.proto", "proto/dra-health/v1/api.proto"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for proto in PROTOS {
        println!("cargo:rerun-if-changed={proto}");
    }
    let descriptors = protox::compile(PROTOS, ["."])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
