//! A todo list as an axum program: JSON, path and query arguments, shared state, a WebSocket.
//!
//! You learn how to move an axum program from tokio to Dapple: two lines.
//!
//! Run it: `cargo run --release -p examples --bin todo`, and in a second terminal:
//!
//! ```text
//! curl -d '{"text": "sleep"}' -H 'content-type: application/json' http://127.0.0.1:3000/todos
//! curl 'http://127.0.0.1:3000/todos?limit=10&done=false'
//! curl -X PATCH -d '{"done": true}' -H 'content-type: application/json' http://127.0.0.1:3000/todos/1
//! curl -X DELETE http://127.0.0.1:3000/todos/1
//! ```
//!
//! There is a WebSocket at `/echo`. On tokio the two lines were:
//!
//! ```text
//! use axum::{extract::ws::{WebSocket, WebSocketUpgrade}, serve};
//! use tokio::{main, net::TcpListener};
//! ```

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, RwLock};

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};

#[rustfmt::skip]
use dapple_http::{serve, ws::{WebSocket, WebSocketUpgrade}};
use dapple::{main, net::TcpListener};

#[derive(Clone, Debug, Serialize)]
struct Todo {
    id: u64,
    text: String,
    done: bool,
}

/// All there is to do, by number.
#[derive(Default)]
struct List {
    todos: BTreeMap<u64, Todo>,
    last: u64,
}

type Shared = Arc<RwLock<List>>;

#[main]
async fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening at {}", listener.local_addr()?);
    serve(listener, router(Shared::default())).await?;
    Ok(())
}

fn router(list: Shared) -> Router {
    Router::new()
        .route("/todos", get(index).post(create))
        .route("/todos/{id}", get(show).patch(update).delete(remove))
        .route("/echo", any(echo))
        .with_state(list)
}

/// Which of them to show.
#[derive(Debug, Default, Deserialize)]
struct Filter {
    done: Option<bool>,
    offset: Option<usize>,
    limit: Option<usize>,
}

async fn index(State(list): State<Shared>, Query(filter): Query<Filter>) -> Json<Vec<Todo>> {
    let list = list.read().unwrap();
    let wanted = list.todos.values().filter(|todo| filter.done.is_none_or(|done| done == todo.done));
    let page = wanted.skip(filter.offset.unwrap_or(0)).take(filter.limit.unwrap_or(usize::MAX));
    Json(page.cloned().collect())
}

#[derive(Debug, Deserialize)]
struct Create {
    text: String,
}

async fn create(State(list): State<Shared>, Json(input): Json<Create>) -> impl IntoResponse {
    let mut list = list.write().unwrap();
    list.last += 1;
    let todo = Todo { id: list.last, text: input.text, done: false };
    list.todos.insert(todo.id, todo.clone());
    (StatusCode::CREATED, Json(todo))
}

async fn show(State(list): State<Shared>, Path(id): Path<u64>) -> Result<Json<Todo>, StatusCode> {
    let list = list.read().unwrap();
    list.todos.get(&id).cloned().map(Json).ok_or(StatusCode::NOT_FOUND)
}

#[derive(Debug, Deserialize)]
struct Update {
    text: Option<String>,
    done: Option<bool>,
}

async fn update(
    State(list): State<Shared>,
    Path(id): Path<u64>,
    Json(input): Json<Update>,
) -> Result<Json<Todo>, StatusCode> {
    let mut list = list.write().unwrap();
    let todo = list.todos.get_mut(&id).ok_or(StatusCode::NOT_FOUND)?;
    if let Some(text) = input.text {
        todo.text = text;
    }
    if let Some(done) = input.done {
        todo.done = done;
    }
    Ok(Json(todo.clone()))
}

async fn remove(State(list): State<Shared>, Path(id): Path<u64>) -> StatusCode {
    match list.write().unwrap().todos.remove(&id) {
        Some(_) => StatusCode::NO_CONTENT,
        None => StatusCode::NOT_FOUND,
    }
}

/// Sends every message back.
async fn echo(upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(async |mut socket: WebSocket| {
        while let Some(Ok(message)) = socket.recv().await {
            if socket.send(message).await.is_err() {
                break;
            }
        }
    })
}
