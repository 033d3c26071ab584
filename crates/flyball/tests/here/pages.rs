//! Opens the pages of a comparison and of a trace in a browser: nothing on its console, nothing
//! wider than the page at three widths, and the words that a reader looks for.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use flyball_testing::{Ran, flyball, skip};

/// A phone, a small window, a wide screen.
const WIDTHS: [u32; 3] = [390, 1024, 1600];

/// Runs before the page's own code: records errors and messages.
const BEFORE: &str = "<script>window.found=[];\
window.onerror=(message)=>{found.push('error: '+message)};\
for(const kind of ['error','warn'])console[kind]=(...words)=>found.push(kind+': '+words.join(' '));</script>";

/// Runs when the page is loaded: reports what was recorded, and elements wider than the window.
const AFTER: &str = "<script>addEventListener('load',()=>setTimeout(()=>{\
const wide=[...document.querySelectorAll('body *')].filter((e)=>e.getClientRects().length>0&&!e.closest('svg')\
&&(e.getBoundingClientRect().right>innerWidth+1||e.getBoundingClientRect().left<-1)).map((e)=>e.outerHTML.slice(0,120));\
if(document.documentElement.scrollWidth>innerWidth)wide.push('scrolls to '+document.documentElement.scrollWidth);\
parent.postMessage({found,wide,width:innerWidth,text:document.body.innerText},'*')},500))</script>";

/// What the page reported at one width.
#[derive(serde::Deserialize)]
struct Seen {
    found: Vec<String>,
    wide: Vec<String>,
    width: u32,
    text: String,
}

fn browser() -> Option<&'static str> {
    let starts = |name: &&str| {
        let mut command = Command::new(name);
        command
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
    };
    ["chromium", "chromium-browser", "google-chrome"].into_iter().find(starts)
}

/// Opens a page in frames of all widths, and returns each report.
fn see(browser: &str, page: &Path) -> Vec<Seen> {
    let folder = tempfile::tempdir().expect("a folder");
    let html = fs::read_to_string(page).expect("the page");
    let watched = html.replacen("<head>", &format!("<head>{BEFORE}"), 1);
    let watched = watched.replacen("</body>", &format!("{AFTER}</body>"), 1);
    assert!(watched.contains(BEFORE) && watched.contains(AFTER), "{}", page.display());
    fs::write(folder.path().join("page.html"), watched).expect("room");
    // Side by side in one window, because a browser does not draw frames that are out of view.
    let frames: String =
        WIDTHS.map(|width| format!("<iframe src=page.html width={width} height=900></iframe>")).concat();
    let around = format!(
        "<!doctype html><meta charset=utf-8><body>{frames}<pre id=seen></pre><script>const all=[];\
         onmessage=(m)=>{{all.push(m.data);seen.textContent=encodeURIComponent(JSON.stringify(all))}}</script>"
    );
    fs::write(folder.path().join("around.html"), around).expect("room");
    let profile = folder.path().join("profile");
    let address = format!("file://{}", folder.path().join("around.html").display());
    let words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--dump-dom"];
    let output = Command::new(browser)
        .args(words)
        .args(["--virtual-time-budget=20000", "--window-size=3200,1000"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(address)
        .output()
        .expect("it started before");
    let dom = String::from_utf8_lossy(&output.stdout);
    let coded = dom.split("<pre id=\"seen\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let coded = coded.unwrap_or_else(|| panic!("{dom} {}", String::from_utf8_lossy(&output.stderr)));
    serde_json::from_slice(&decoded(coded)).unwrap_or_else(|error| panic!("{error}: {coded}"))
}

/// Decodes a text with %XX.
fn decoded(text: &str) -> Vec<u8> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).expect("two digits"));
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    bytes
}

fn check(browser: &str, page: &Path, words: &[&str]) {
    let seen = see(browser, page);
    let mut widths: Vec<u32> = seen.iter().map(|seen| seen.width).collect();
    widths.sort_unstable();
    assert_eq!(widths, WIDTHS, "{}", page.display());
    for Seen { found, wide, width, text } in seen {
        assert_eq!(found, [""; 0], "{} at {width}", page.display());
        assert_eq!(wide, [""; 0], "{} at {width}", page.display());
        for word in words {
            assert!(text.contains(word), "{word} at {width}: {text}");
        }
    }
}

fn ran(folder: &Path, words: &[&str]) {
    let ran = Ran::of(flyball!().current_dir(folder).args(words));
    assert_eq!(ran.code, 0, "{words:?}: {}", ran.text());
}

#[test]
fn pages_fit_every_screen() {
    let Some(browser) = browser() else { return skip(3, "pages", "no chromium") };
    let folder = tempfile::tempdir().expect("a folder");
    let work = ["--workload", "sched-pipe", "--amount", "2000", "--warm-up", "0", "--seed", "7"];
    let compare = |arms: &[&str], rounds: &str, name: &str| {
        let machine = ["-M", "sim:ryzen-5750g", "compare", "--rounds", rounds, "-o", name];
        ran(folder.path(), &[&machine[..], arms, &work].concat());
    };
    compare(&["--arm", "now", "--arm", "slow: max-freq=1GHz"], "10", "two");
    let sixteen = [
        "--matrix",
        "max-freq=1GHz,1.4GHz,1.8GHz,2.2GHz,2.6GHz,3GHz,3.2GHz,3.8GHz",
        "--matrix",
        "turbo=on,off",
    ];
    compare(&sixteen, "2", "sixteen");
    let simulated = "Simulated: sim:ryzen-5750g";
    check(
        browser,
        &folder.path().join("two/report.html"),
        &[simulated, "better", "worse", "lowest energy", "kernel command line", "compare --rounds 10"],
    );
    check(
        browser,
        &folder.path().join("sixteen/report.html"),
        &[simulated, "too few", "16 max-freq=3.8GHz turbo=off"],
    );
    ran(
        folder.path(),
        &[
            "-M",
            "sim:ryzen-5750g,boot=amd_pstate=passive",
            "trace",
            "record",
            "-o",
            "t.dat",
            "--",
            "gitsource",
        ],
    );
    ran(folder.path(), &["trace", "report", "t.dat", "--html", "trace.html"]);
    check(
        browser,
        &folder.path().join("trace.html"),
        &[simulated, "AMD Ryzen", "GHz", "CPU 15", "per second"],
    );
}
