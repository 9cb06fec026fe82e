//! actix-web: a runtime of one thread for each worker.

use std::io;
use std::time::Duration;

use actix_web::body::BoxBody;
use actix_web::http::header::{ACCEPT_RANGES, ETAG, LAST_MODIFIED};
use actix_web::web::{self, Data};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};

use super::files::{self, Map};
use crate::contest::Failure;
use crate::served::answer;
use crate::sides::WORKERS;
use crate::sides::net::ANY;

/// The name of the side.
pub(crate) const NAME: &str = "actix";

/// The idle timeout of a connection, the same as nginx's.
const KEPT: Duration = Duration::from_secs(75);

/// Serves files from memory. Without a route, which is a little faster.
pub(crate) fn serve_files(map: Map) -> Result<(), Failure> {
    let map = Data::new(map);
    ended(actix_web::rt::System::new().block_on(async move {
        let app = move || App::new().app_data(map.clone()).default_service(web::to(file));
        let server = HttpServer::new(app).workers(WORKERS).keep_alive(KEPT).bind(ANY)?;
        answer(server.addrs()[0]);
        server.run().await
    }))
}

async fn file(request: HttpRequest, map: Data<Map>) -> HttpResponse<BoxBody> {
    let Some(file) = map.get(request.path()) else { return HttpResponse::NotFound().finish() };
    HttpResponse::Ok()
        .content_type(files::TYPE)
        .insert_header((ETAG, file.tag.as_bytes()))
        .insert_header((LAST_MODIFIED, files::MODIFIED))
        .insert_header((ACCEPT_RANGES, "bytes"))
        .body(file.bytes.clone())
}

/// Answers with a text at a path.
pub(crate) fn serve_text(path: &'static str, text: &'static str) -> Result<(), Failure> {
    ended(actix_web::rt::System::new().block_on(async move {
        let app = move || App::new().route(path, web::get().to(move || async move { text }));
        let server = HttpServer::new(app).workers(WORKERS).keep_alive(KEPT).bind(ANY)?;
        answer(server.addrs()[0]);
        server.run().await
    }))
}

fn ended(result: io::Result<()>) -> Result<(), Failure> {
    Err(format!("actix-web has ended: {result:?}"))
}
