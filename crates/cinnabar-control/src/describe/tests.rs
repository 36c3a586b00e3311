//! The description and the router agree, and a parser that is not ours reads it.

use super::*;
use crate::life::Life;
use crate::peer::Peer;
use crate::{Control, api};
use axum::body::Body;
use axum::extract::{Extension, Request};
use axum::http::StatusCode;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

const METHODS: [&str; 6] = ["get", "put", "post", "delete", "patch", "options"];

fn document() -> Value {
    serde_json::from_str(text()).expect("it is JSON")
}

/// Each path with each of its methods and what is said of that.
fn operations_of(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().expect("paths");
    let operations = paths.iter().flat_map(|(path, item)| {
        let item = item.as_object().expect("a path item");
        item.iter().map(|(method, operation)| (path.clone(), method.clone(), operation.clone()))
    });
    operations.collect()
}

/// A daemon that starts: every handler can be reached and none of them does anything.
fn starting() -> axum::Router {
    let control = Control::new("/".into(), "/control.sock".into(), Duration::from_secs(1));
    api::router(control).layer(Extension(Life::new(Duration::from_mins(1), Peer::Operator)))
}

fn answer_of(router: axum::Router, method: &str, uri: &str) -> (StatusCode, Vec<u8>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let request = Request::builder().method(method.to_uppercase().as_str()).uri(uri);
        let request = request.body(Body::empty()).expect("a request");
        let answer = TowerToHyperService::new(router).call(request).await.expect("infallible");
        let code = answer.status();
        let body = http_body_util::BodyExt::collect(answer.into_body()).await.expect("a body");
        (code, body.to_bytes().to_vec())
    })
}

#[test]
fn every_route_is_described_and_everything_described_is_routed() {
    let operations = operations_of(&document());
    let described: BTreeSet<&str> = operations.iter().map(|(path, ..)| path.as_str()).collect();
    // The router has no list of its routes but this.
    let routes = format!("{:?}", starting());
    let routed: BTreeSet<&str> =
        routes.split('"').filter(|text| text.starts_with("/v1/")).collect();
    assert!(routed.len() >= 12, "the router does not show its routes: {routes}");
    assert_eq!(routed, described);
    for path in described {
        for method in METHODS {
            let uri = path.replace("{name}", "vm1").replace("{id}", "1");
            let (code, _) = answer_of(starting(), method, &uri);
            let known =
                operations.iter().any(|(p, m, _)| (p.as_str(), m.as_str()) == (path, method));
            assert_eq!(code != StatusCode::METHOD_NOT_ALLOWED, known, "{method} {path}: {code}");
        }
    }
}

#[test]
fn what_a_starting_daemon_answers_is_described() {
    for (path, method, operation) in operations_of(&document()) {
        let uri = path.replace("{name}", "vm1").replace("{id}", "1");
        let (code, body) = answer_of(starting(), &method, &uri);
        assert!(operation["responses"][code.as_str()].is_object(), "{method} {path}: {code}");
        assert!(serde_json::from_slice::<Value>(&body).is_ok(), "{method} {path}: {code}");
    }
}

#[test]
fn paths_and_queries_that_cannot_be_read_get_an_error_body() {
    for (method, uri) in [
        ("post", "/v1/volumes?colour=red"),
        ("patch", "/v1/volumes/vm1?colour=red"),
        ("delete", "/v1/volumes/vm1?colour=red"),
        ("delete", "/v1/volumes/vm1?force=perhaps"),
        ("delete", "/v1/volumes/%FF"),
        ("patch", "/v1/volumes/%FF"),
        ("post", "/v1/volumes/%FF/flush"),
        ("post", "/v1/volumes/%FF/invalidate"),
        ("post", "/v1/volumes/%FF/resize"),
    ] {
        let (code, body) = answer_of(starting(), method, uri);
        assert_eq!(code, StatusCode::BAD_REQUEST, "{method} {uri}");
        let body: ErrorBody = serde_json::from_slice(&body).expect("an error body");
        assert!(!body.error.is_empty() && !body.hint.is_empty(), "{method} {uri}: {body:?}");
    }
}

#[test]
fn the_description_is_valid_for_a_parser_that_is_not_ours() {
    let spec = oas3::from_json(text()).expect("it is OpenAPI 3.1");
    spec.validate_version().expect("a version it knows");
    let mut names = BTreeSet::new();
    for (path, method, operation) in spec.operations() {
        let name = operation.operation_id.clone().expect("an operation has a name");
        assert!(names.insert(name.clone()), "{name} twice");
        assert!(operation.summary.is_some() && operation.tags.len() == 1, "{method} {path}");
        let holes = path.matches('{').count();
        let parameters = operation.parameters(&spec).expect("parameters resolve");
        let in_path =
            parameters.iter().filter(|parameter| path.contains(&format!("{{{}}}", parameter.name)));
        assert_eq!(in_path.count(), holes, "{method} {path}");
        if let Some(body) = operation.request_body(&spec).expect("a body resolves") {
            let json = body.content.get("application/json").expect("a body is JSON");
            json.schema(&spec).expect("its schema resolves").expect("a body has a schema");
        }
        for (code, response) in operation.responses(&spec) {
            for media in response.content.values() {
                media.schema(&spec).expect("its schema resolves").expect("a schema");
            }
            assert!(
                code.starts_with('2') || !response.content.is_empty(),
                "{method} {path} {code}"
            );
        }
    }
    assert!(names.len() >= 14, "{names:?}");
}

#[test]
fn every_reference_leads_to_something_and_every_schema_is_explained() {
    let document = document();
    let mut refs = BTreeSet::new();
    collect_refs(&document, &mut refs);
    assert!(refs.len() > 20, "{refs:?}");
    for reference in &refs {
        let pointer = reference.strip_prefix('#').expect("nothing is outside of the document");
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
    for (name, schema) in document["components"]["schemas"].as_object().expect("schemas") {
        assert!(schema["description"].is_string(), "{name}");
        let unused = !refs.contains(&format!("#/components/schemas/{name}"));
        assert!(!unused || ["EventReport", "Word"].contains(&name.as_str()), "{name} is not used");
        // Links of the source mean nothing to a reader of the description.
        let text = schema.to_string();
        assert!(!text.contains("[`"), "{name}: {text}");
    }
}

fn collect_refs(value: &Value, refs: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            refs.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
            map.values().for_each(|value| collect_refs(value, refs));
        }
        Value::Array(list) => list.iter().for_each(|value| collect_refs(value, refs)),
        _ => {}
    }
}
