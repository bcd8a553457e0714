//! Responds to a request: its exchange ends with the body of the response, or with a tunnel.

use http::{Response, response};

use super::{
    exchange::Exchange,
    reply::Reply,
    response_body::{BodySource, ResponseBody},
};

impl Exchange {
    /// Responds with this head and body.
    pub(super) fn respond(
        mut self: Box<Self>,
        mut head: response::Parts,
        body: BodySource,
    ) -> Response<ResponseBody> {
        self.begin_response(&mut head);
        Response::from_parts(head, ResponseBody::new(body, self))
    }

    /// Responds with the proxy's own `reply`.
    pub(super) fn reply(mut self: Box<Self>, reply: Reply) -> Response<ResponseBody> {
        let (head, body) = self.take_reply(reply);
        self.respond(head, BodySource::Whole(body))
    }

    /// Responds with the route's configured reply.
    pub(super) fn reply_of_route(mut self: Box<Self>, reply: Reply) -> Response<ResponseBody> {
        self.set_of_route();
        self.reply(reply)
    }
}
