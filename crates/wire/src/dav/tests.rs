use super::*;
use base::rng::seeded;

fn name(namespace: &str, local: &str) -> PropertyName {
    PropertyName { namespace: namespace.to_string(), local: local.to_string() }
}

fn set(value: &str) -> String {
    format!(
        "<?xml version=\"1.0\"?><D:propertyupdate xmlns:D=\"DAV:\"><D:set><D:prop>{value}\
         </D:prop></D:set></D:propertyupdate>"
    )
}

fn value_of(property: &str) -> String {
    match &proppatch(set(property).as_bytes()).unwrap()[..] {
        [Change::Set(property)] => property.value.clone(),
        other => panic!("{other:?}"),
    }
}

fn status(body: &str) -> u16 {
    proppatch(body.as_bytes()).expect_err(body).status
}

#[test]
fn a_propfind_requests_all_properties_or_names_or_some() {
    assert_eq!(propfind(b"  \r\n"), Ok(Wanted::All(Vec::new())));
    let body = |content: &str| format!("<propfind xmlns=\"DAV:\">{content}</propfind>");
    let parse = |content: &str| propfind(body(content).as_bytes());
    assert_eq!(parse("<allprop/>"), Ok(Wanted::All(Vec::new())));
    assert_eq!(parse("<propname/>"), Ok(Wanted::Names));
    let included = parse("<allprop/><include><a xmlns=\"x\"/></include>");
    assert_eq!(included, Ok(Wanted::All(vec![name("x", "a")])));
    let some = parse("<prop><getetag/><b xmlns=\"\"/><getetag></getetag></prop>");
    assert_eq!(some, Ok(Wanted::These(vec![PropertyName::dav("getetag"), name("", "b")])));
    // RFC 4918 §17: unknown elements are ignored.
    assert_eq!(parse("<x><allprop/></x><prop/>"), Ok(Wanted::These(Vec::new())));
    for bad in ["", "<x/>", "<allprop/><propname/>", "<prop><p:a/></prop>", "<prop>"] {
        assert_eq!(parse(bad).unwrap_err().status, 400, "{bad}");
    }
    assert_eq!(propfind(b"<propfind/>").unwrap_err().status, 400);
    assert_eq!(propfind(b"<propfind xmlns=\"DAV:\"><allprop/>").unwrap_err().status, 400);
}

#[test]
fn values_are_valid_outside_of_their_body() {
    let nested = value_of("<p:a xmlns:p=\"u&amp;v\" xmlns:q=\"w\">t<q:b q:c='1'/><d/></p:a>");
    assert_eq!(nested, "t<b xmlns=\"w\" xmlns:a0=\"w\" a0:c=\"1\"></b><d xmlns=\"\"></d>");
    let space = "<p xml:space=\"preserve\" b=\"1&#10;2\"> x </p>";
    let stored = value_of(&format!("<a>{space}</a>"));
    assert_eq!(value_of(&format!("<a>{stored}</a>")), stored);
    assert!(stored.contains(" xml:space=\"preserve\"") && stored.contains("1&#10;2"), "{stored}");
    assert_eq!(value_of("<a>&lt;&#65;<![CDATA[<&]]></a>"), "&lt;A&lt;&amp;");
    let mut text = String::new();
    write_property(&name("u&v", "a"), Some("de"), &nested, &mut text);
    let again = set(&text);
    let [Change::Set(again)] = &proppatch(again.as_bytes()).unwrap()[..] else { panic!("{again}") };
    assert_eq!((&again.name, again.lang.as_deref()), (&name("u&v", "a"), Some("de")));
    assert_eq!(again.value, nested, "they can be stored as they are");
}

#[test]
fn changes_are_in_the_order_of_the_body_and_inherit_their_language() {
    let body = "<u:propertyupdate xmlns:u=\"DAV:\" xml:lang=\"en\"><u:remove><u:prop><a/></u:prop>\
                </u:remove><u:set><u:prop xml:lang=\"fr\"><a>x</a></u:prop></u:set>\
                </u:propertyupdate>";
    let a = name("", "a");
    let property = Property { name: a.clone(), lang: Some("fr".into()), value: "x".into() };
    assert_eq!(proppatch(body.as_bytes()), Ok(vec![Change::Remove(a), Change::Set(property)]));
}

#[test]
fn locks_are_exclusive_or_shared() {
    let body = |scope: &str, owner: &str| {
        format!(
            "<D:lockinfo xmlns:D=\"DAV:\"><D:lockscope><D:{scope}/></D:lockscope><D:locktype>\
             <D:write/></D:locktype>{owner}</D:lockinfo>"
        )
    };
    let parse = |scope: &str, owner: &str| lock_request(body(scope, owner).as_bytes());
    let owner = parse("exclusive", "<D:owner><D:href>me</D:href></D:owner>").unwrap().unwrap();
    let text = "<href xmlns=\"DAV:\">me</href>".to_string();
    assert_eq!(owner, LockScope { is_exclusive: true, owner: Some(text) });
    assert_eq!(parse("shared", ""), Ok(Some(LockScope { is_exclusive: false, owner: None })));
    assert_eq!(lock_request(b""), Ok(None));
    assert_eq!(parse("other", "").unwrap_err().status, 422);
    let long = format!("<D:owner>{}</D:owner>", "x".repeat(2000));
    assert_eq!(parse("shared", &long).unwrap_err().status, 413);
    assert_eq!(lock_request(b"<a/>").unwrap_err().status, 400);
    let mut out = String::new();
    write_lock(&owner, (true, 60), ("urn:x", "/a/"), &mut out);
    assert!(out.contains("<D:exclusive/>") && out.contains("Second-60"), "{out}");
}

#[test]
fn hostile_bodies_are_refused() {
    assert_eq!(status("<!DOCTYPE x [<!ENTITY a \"b\">]><propertyupdate xmlns=\"DAV:\"/>"), 400);
    assert_eq!(status(&set("<a>&b;</a>")), 400);
    assert_eq!(status(&set("<a>&#0;</a>")), 400);
    assert_eq!(status(&set("<a>&#1;</a>")), 400);
    assert_eq!(status(&set("<p:a xmlns:p=\"\"/>")), 400);
    assert_eq!(status(&set("<a\"b/>")), 400);
    assert_eq!(status(&set("<a b='1' b='2'/>")), 400);
    for bad in [
        "<a>\u{1}</a>",
        "<a><![CDATA[\u{1}]]></a>",
        "<a b='&#1;'/>",
        "<a xml:lang='&#1;'/>",
        "<a xmlns='&#1;'/>",
        "<a>\u{fffe}</a>",
        "<a>&#xFFFE;</a>",
        "<×/>",
        "<·a/>",
        "<a ×='1'/>",
        "<a><xml:b/></a>",
        "<a><xmlns:b/></a>",
        "<xml:b/>",
        "<a xmlns:b='u' xmlns:c='u' b:x='1' c:x='2'/>",
    ] {
        assert_eq!(status(&set(bad)), 400, "{bad}");
    }
    assert_eq!(status(&set("")), 400);
    assert_eq!(status(&format!("{}junk", set("<a/>"))), 400);
    assert_eq!(status(&set(&"<a>".repeat(40))), 413);
    assert_eq!(status(&set(&format!("<a xmlns=\"{}\"/>", "x".repeat(300)))), 400);
    assert_eq!(status(&set(&format!("<{}/>", "x".repeat(300)))), 413);
    assert_eq!(status(&set(&"<a/>".repeat(300))), 413);
    // A short body whose values repeat a long namespace for each of many elements.
    let many = format!("<a xmlns:p=\"{}\">{}</a>", "x".repeat(200), "<p:b/>".repeat(5000));
    assert_eq!(status(&set(&many)), 413);
}

#[test]
fn random_bodies_are_parsed_or_refused() {
    let parts = [
        "<a xmlns=\"DAV:\">",
        "</a>",
        "<D:prop>",
        "</D:prop>",
        "<x/>",
        "&amp;",
        "&x;",
        "<![CDATA[",
        "]]>",
        "<!--",
        "-->",
        "<?",
        "?>",
        "\"",
        "xmlns:D='DAV:'",
        "<propertyupdate xmlns=\"DAV:\">",
        "<set>",
        "<prop>",
        "</prop></set></propertyupdate>",
        "<propfind xmlns=\"DAV:\">",
        "\0",
        "ü",
    ];
    let mut rng = seeded(3);
    let mut parsed = 0;
    for _ in 0..20_000 {
        let count = rng.usize(1..12);
        let body: String = (0..count).map(|_| parts[rng.usize(..parts.len())]).collect();
        parsed +=
            usize::from(propfind(body.as_bytes()).is_ok() || proppatch(body.as_bytes()).is_ok());
    }
    assert!(parsed < 20_000, "most are refused");
}
