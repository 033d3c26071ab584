# nix-build -E 'with import <nixpkgs> {}; callPackage ./package.nix { src = ./flyball-0.1.0.tar.xz; }'
{ lib, rustPlatform, python3, src }:

rustPlatform.buildRustPackage {
  pname = "flyball";
  version = "0.1.0";
  inherit src;
  # The archive of scripts/release has the crates.
  cargoVendorDir = "vendor";
  buildFeatures = [ "full" "tls" ];
  # They need programs and files of the machine; scripts/test runs them.
  doCheck = false;
  nativeBuildInputs = [ python3 ];
  # dist/stage adds the manual, completions, profiles and units, below usr.
  postInstall = ''
    results=$(mktemp -d)
    cp $out/bin/flyball $results
    patchShebangs dist
    dist/stage $results $TMPDIR/stage
    cp -r $TMPDIR/stage/usr/{lib,share} $out
    substituteInPlace $out/lib/systemd/system/* --replace-quiet /usr/bin/flyball $out/bin/flyball
  '';
  meta = {
    description = "CPU performance control on Linux: show, set, compare, trace, simulate";
    license = with lib.licenses; [ mit asl20 ];
    platforms = [ "x86_64-linux" "aarch64-linux" ];
    mainProgram = "flyball";
  };
}
