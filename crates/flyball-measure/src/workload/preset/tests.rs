//! The outputs are in the form that the tools print, with our own numbers.

use super::*;

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn read(preset: Preset, stdout: &str, line: &str) -> Option<f64> {
    let output = Output { stdout: stdout.to_owned(), stderr: String::new() };
    preset.read(&output, &words(line)).map(|reading| reading.value)
}

#[test]
fn commands_are_recognised() {
    for (line, want) in [
        ("perf bench sched pipe -l 1000", Some(Preset::PerfPipe)),
        ("/usr/bin/perf bench sched messaging", Some(Preset::PerfMessaging)),
        ("tbench -t 10 4", Some(Preset::Tbench)),
        ("fio --output-format=json job.fio", Some(Preset::Fio)),
        ("fio job.fio", None),
        ("stress-ng --cpu 1 -t 5 --metrics-brief", Some(Preset::StressNg)),
        ("stress-ng --cpu 1 -t 5", None),
        ("openssl speed sha256", Some(Preset::Openssl)),
        ("openssl speed rsa2048", Some(Preset::OpensslSign)),
        ("sysbench cpu run", Some(Preset::Sysbench)),
        ("nice pgbench -T 30 bench", Some(Preset::Pgbench)),
        ("make -j8", None),
        ("", None),
    ] {
        assert_eq!(Preset::for_command(&words(line)), want, "{line}");
    }
}

#[test]
fn pgbench_is_read() {
    let output = "latency average = 0.218 ms\ninitial connection time = 9.683 ms\n\
                  tps = 4590.383147 (without initial connection time)\n";
    assert_eq!(read(Preset::Pgbench, output, "pgbench"), Some(4590.383_147));
}

#[test]
fn commands_of_a_fixed_time_are_recognised() {
    for (line, want) in [
        ("nice /usr/bin/stress-ng --cpu 1 -t 5", Some("stress-ng -t")),
        ("fio --runtime=3 --time_based job.fio", Some("fio --time_based")),
        ("stress-ng --cpu 1 --cpu-ops 100", None),
        ("make -t", None),
        ("", None),
    ] {
        assert_eq!(fixed_time(&words(line)).as_deref(), want, "{line}");
    }
}

#[test]
fn perf_bench_is_read() {
    let pipe = "# Running 'sched/pipe' benchmark:\n# Executed 10 pipe operations between two processes\n\n\
                     Total time: 0.050 [sec]\n\n       5.000000 usecs/op\n         200000 ops/sec\n";
    assert_eq!(read(Preset::PerfPipe, pipe, "perf"), Some(200_000.0));
    let messaging = "# 1 groups == 40 processes run\n\n     Total time: 0.067 [sec]\n";
    assert_eq!(read(Preset::PerfMessaging, messaging, "perf"), Some(0.067));
    assert_eq!(read(Preset::PerfPipe, "0.123\n", "perf"), None);
}

#[test]
fn tbench_is_read_as_the_selftest_reads_it() {
    let text = " 2  cleanup   2 sec\n\nThroughput 811.9 MB/sec  2 clients  2 procs  max_latency=1.604 ms\n";
    let output = Output { stdout: text.to_owned(), stderr: String::new() };
    let reading = Preset::Tbench.read(&output, &words("tbench -t 100 2")).expect("there is a throughput");
    assert_eq!(reading, Reading { value: 811.9, work_seconds: Some(99.0) });
    assert_eq!(time_limit(&words("tbench -t20 2")), Some(20.0));
    assert_eq!(time_limit(&words("tbench --timelimit=20 2")), Some(20.0));
    assert_eq!(time_limit(&words("tbench 2")), Some(600.0));
    assert_eq!(read(Preset::Tbench, "Throughput nan MB/sec", "tbench"), None);
}

#[test]
fn fio_json_is_read() {
    let text = r#"fio: warning: something {odd
{ "jobs": [
  {"read": {"iops": 1000.5, "total_ios": 300, "lat_ns": {"mean": 50000.0}},
   "write": {"iops": 0.0, "total_ios": 0, "lat_ns": {"mean": 0.0}}},
  {"read": {"iops": 500.0, "total_ios": 100, "lat_ns": {"mean": 90000.0}}}
] }"#;
    // The reader does not tolerate a brace in a warning.
    assert_eq!(read(Preset::Fio, text, "fio"), None);
    let text = text.replace("{odd", "odd");
    assert_eq!(read(Preset::Fio, &text, "fio"), Some(1500.5));
    assert_eq!(read(Preset::FioLatency, &text, "fio"), Some(60.0));
    assert_eq!(read(Preset::Fio, "{", "fio"), None);
    assert_eq!(read(Preset::Fio, "}{", "fio"), None);
}

#[test]
fn sysbench_is_read() {
    assert_eq!(
        read(Preset::Sysbench, "CPU speed:\n    events per second:  1234.56\n", "sysbench"),
        Some(1234.56)
    );
    let memory = "Total operations: 5000 (  4321.50 per second)\n\n4.88 MiB transferred (4.22 MiB/sec)\n";
    assert_eq!(read(Preset::Sysbench, memory, "sysbench"), Some(4321.5));
    let database = "    transactions:                        2000   (199.90 per sec.)\n";
    assert_eq!(read(Preset::Sysbench, database, "sysbench"), Some(199.9));
    let threads =
        "    total time:                          10.0s\n    total number of events:              250\n";
    assert_eq!(read(Preset::Sysbench, threads, "sysbench"), Some(25.0));
}

#[test]
fn stress_ng_is_read_in_both_forms() {
    let new = "\
stress-ng: info:  [1] dispatching hogs: 1 cpu, 1 pipe
stress-ng: metrc: [1] stressor       bogo ops real time  usr time  sys time   bogo ops/s     bogo ops/s CPU used per       RSS Max
stress-ng: metrc: [1]                           (secs)    (secs)    (secs)   (real time) (usr+sys time) instance (%)          (KB)
stress-ng: metrc: [1] cpu                 400      1.00      0.22      0.00       400.00        2000.00        21.45          6480
stress-ng: metrc: [1] pipe             900000      1.00      0.13      0.83    900000.00      930000.00        95.90          2416
stress-ng: metrc: [1] miscellaneous metrics:
stress-ng: metrc: [1] pipe                 279.64 MB per sec pipe write rate (geometic mean of 1 instances)
stress-ng: info:  [1] successful run completed in 1.01s
";
    let value = read(Preset::StressNg, new, "stress-ng").expect("two rows");
    assert!((value - (400.0_f64 * 900_000.0).sqrt()).abs() < 1e-6, "{value}");
    let old = "stress-ng: info:  [7] cpu    1377      1.00      0.63      0.00      1374.07        2175.01\n";
    let output = Output { stdout: String::new(), stderr: old.to_owned() };
    let value = Preset::StressNg.read(&output, &[]).expect("one row").value;
    assert!((value - 1374.07).abs() < 1e-6);
}

#[test]
fn openssl_is_read() {
    let text = "The 'numbers' are in 1000s of bytes per second processed.\ntype   16 bytes  1024 bytes\nsha256   100.00k   400.00k\n";
    let value = read(Preset::Openssl, text, "openssl").expect("two cells");
    assert!((value - 200.0).abs() < 1e-9);
    let value =
        read(Preset::Openssl, "+H:1024\n+F:25:AES-128-GCM:2000000.00\n", "openssl").expect("one cell");
    assert!((value - 2000.0).abs() < 1e-9);
    let sign = "                  sign    verify    sign/s verify/s\nrsa 2048 bits 0.000208s 0.000012s   4809.1  80038.1\n";
    let value = read(Preset::OpensslSign, sign, "openssl").expect("one row");
    assert!((value - 4809.1).abs() < 1e-6);
}

#[test]
fn expressions_need_one_group() {
    assert!(matches!(
        Reader::expression("score", "x", Better::Higher, false),
        Err(ExpressionError::Groups(0))
    ));
    assert!(matches!(Reader::expression("(", "x", Better::Higher, false), Err(ExpressionError::Syntax(_))));
    let reader =
        Reader::expression(r"score: ([0-9.,]+)", "points", Better::Higher, false).expect("a good pattern");
    let output = Output { stdout: "score: 1\nscore: 1,234.5\n".to_owned(), stderr: String::new() };
    assert_eq!(reader.read(&output, 0.0, &[]).map(|r| r.value), Some(1234.5));
    assert_eq!(reader.read(&Output::default(), 0.0, &[]), None);
}

#[test]
fn odd_bytes_do_no_harm() {
    for text in
        ["", "\u{fffd}\u{0}", "Throughput", "ops/sec", "Total time:", "] \n] x", "(", "+F:", "total time: s"]
    {
        for (_, preset) in Preset::ALL {
            assert_eq!(read(*preset, text, ""), None, "{text:?}");
        }
    }
}

#[test]
fn commas_group_or_point() {
    let read = |text: &str| {
        let reader =
            Reader::expression("took ([-0-9.,]+)", "ms", Better::Lower, false).expect("a good expression");
        let output = Output { stdout: format!("took {text} ms\n"), stderr: String::new() };
        reader.read(&output, 1.0, &[]).map(|reading| reading.value)
    };
    for (text, want) in [
        ("1,234.5", Some(1234.5)),
        ("1,234,567", Some(1_234_567.0)),
        ("1,234", Some(1234.0)),
        ("20,3", Some(20.3)),
        ("1234,56", Some(1234.56)),
        ("0,123", Some(0.123)),
        ("-20,3", Some(-20.3)),
        ("1.234,5", None),
        ("1,2,3", None),
        ("12.5", Some(12.5)),
    ] {
        assert_eq!(read(text), want, "{text}");
    }
}

#[test]
fn signatures_are_found_by_their_head() {
    let read = |text: &str| {
        let output = Output { stdout: text.to_owned(), stderr: String::new() };
        Preset::OpensslSign.read(&output, &[]).map(|reading| reading.value)
    };
    let old = "                  sign    verify    sign/s verify/s\nrsa 2048 bits 0.000238s 0.000014s   4195.1  69572.7\n";
    assert!((read(old).expect("a row") - 4195.1).abs() < 1e-6);
    let new = "                   sign    verify    encrypt   decrypt   sign/s verify/s  encr./s  decr./s\n\
               rsa  2048 bits 0.000238s 0.000014s 0.000015s 0.000240s   4195.1  69572.7  66000.0   4166.0\n";
    assert!((read(new).expect("a row") - 4195.1).abs() < 1e-6);
    let exchange = format!(
        "{old}                              op      op/s\n 253 bits ecdh (X25519)   0.0000s  30000.0\n"
    );
    assert!((read(&exchange).expect("a row") - 4195.1).abs() < 1e-6);
}
