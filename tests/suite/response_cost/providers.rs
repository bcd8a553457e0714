//! Responses of providers, written by hand after their public references.

use std::sync::Arc;

use tollgate::response_cost::{FoundNumber, JsonSum};

use super::{EVENTS, JSON, gzip, scan};

/// `POST /v1/chat/completions`
const OPENAI_CHAT: &str = r#"{
  "id": "chatcmpl-1a2b3c",
  "object": "chat.completion",
  "created": 1750000000,
  "model": "gpt-4o-mini-2024-07-18",
  "choices": [
    {
      "index": 0,
      "message": {
        "role": "assistant",
        "content": "A body may say \"usage\": {\"total_tokens\": 999} and mean nothing by it. \\",
        "refusal": null,
        "annotations": []
      },
      "logprobs": null,
      "finish_reason": "stop"
    }
  ],
  "usage": {
    "prompt_tokens": 23,
    "completion_tokens": 41,
    "total_tokens": 64,
    "prompt_tokens_details": { "cached_tokens": 0, "audio_tokens": 0 },
    "completion_tokens_details": {
      "reasoning_tokens": 0,
      "audio_tokens": 0,
      "accepted_prediction_tokens": 0,
      "rejected_prediction_tokens": 0
    }
  },
  "service_tier": "default",
  "system_fingerprint": "fp_0a1b2c3d"
}
"#;

/// With `stream` and without `stream_options`.
const OPENAI_STREAM: &str = r#"data: {"id":"chatcmpl-1a2b3c","object":"chat.completion.chunk","created":1750000000,"model":"gpt-4o-mini","service_tier":"default","system_fingerprint":"fp_0a1b","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}]}

data: {"id":"chatcmpl-1a2b3c","object":"chat.completion.chunk","created":1750000000,"model":"gpt-4o-mini","service_tier":"default","system_fingerprint":"fp_0a1b","choices":[{"index":0,"delta":{"content":"Good"},"logprobs":null,"finish_reason":null}]}

data: {"id":"chatcmpl-1a2b3c","object":"chat.completion.chunk","created":1750000000,"model":"gpt-4o-mini","service_tier":"default","system_fingerprint":"fp_0a1b","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}

data: [DONE]

"#;

/// With `stream_options.include_usage`.
pub(super) const OPENAI_STREAM_WITH_USAGE: &str = r#"data: {"id":"chatcmpl-1a2b3c","object":"chat.completion.chunk","created":1750000000,"model":"gpt-4o-mini","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"aX9"}

data: {"id":"chatcmpl-1a2b3c","object":"chat.completion.chunk","created":1750000000,"model":"gpt-4o-mini","choices":[{"index":0,"delta":{"content":"Good"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"Qk"}

data: {"id":"chatcmpl-1a2b3c","object":"chat.completion.chunk","created":1750000000,"model":"gpt-4o-mini","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null,"obfuscation":"z0"}

data: {"id":"chatcmpl-1a2b3c","object":"chat.completion.chunk","created":1750000000,"model":"gpt-4o-mini","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}},"obfuscation":""}

data: [DONE]

"#;

/// `POST /v1/responses`
const OPENAI_RESPONSE: &str = r#"{
  "id": "resp_1a2b3c",
  "object": "response",
  "created_at": 1750000000,
  "status": "completed",
  "error": null,
  "incomplete_details": null,
  "model": "gpt-4.1",
  "output": [
    {
      "type": "message",
      "id": "msg_1a2b3c",
      "status": "completed",
      "role": "assistant",
      "content": [{ "type": "output_text", "text": "Good morning.", "annotations": [] }]
    }
  ],
  "parallel_tool_calls": true,
  "usage": {
    "input_tokens": 36,
    "input_tokens_details": { "cached_tokens": 0 },
    "output_tokens": 87,
    "output_tokens_details": { "reasoning_tokens": 0 },
    "total_tokens": 123
  },
  "user": null,
  "metadata": {}
}
"#;

/// `POST /v1/responses` with `stream`.
const OPENAI_RESPONSE_STREAM: &str = r#"event: response.created
data: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1a2b3c","object":"response","created_at":1750000000,"status":"in_progress","error":null,"model":"gpt-4.1","output":[],"usage":null,"metadata":{}}}

event: response.in_progress
data: {"type":"response.in_progress","sequence_number":1,"response":{"id":"resp_1a2b3c","object":"response","status":"in_progress","output":[],"usage":null,"metadata":{}}}

event: response.output_item.added
data: {"type":"response.output_item.added","sequence_number":2,"output_index":0,"item":{"id":"msg_1a","type":"message","status":"in_progress","role":"assistant","content":[]}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","sequence_number":3,"item_id":"msg_1a","output_index":0,"content_index":0,"delta":"Good"}

event: response.output_text.done
data: {"type":"response.output_text.done","sequence_number":4,"item_id":"msg_1a","output_index":0,"content_index":0,"text":"Good"}

event: response.completed
data: {"type":"response.completed","sequence_number":5,"response":{"id":"resp_1a2b3c","object":"response","status":"completed","output":[{"id":"msg_1a","type":"message","role":"assistant","content":[{"type":"output_text","text":"Good","annotations":[]}]}],"usage":{"input_tokens":37,"input_tokens_details":{"cached_tokens":0},"output_tokens":11,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":48},"metadata":{}}}

"#;

/// `POST /v1/messages`
const ANTHROPIC_MESSAGE: &str = r#"{"id":"msg_01Ab","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[{"type":"text","text":"Good morning."}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":2095,"cache_creation_input_tokens":100,"cache_read_input_tokens":20,"cache_creation":{"ephemeral_5m_input_tokens":100,"ephemeral_1h_input_tokens":0},"output_tokens":503,"service_tier":"standard"}}"#;

/// `POST /v1/messages` with `stream`. `output_tokens` are totals so far.
const ANTHROPIC_STREAM: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_01Ab","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":25,"cache_creation_input_tokens":0,"cache_read_input_tokens":7,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: ping
data: {"type": "ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Good"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":null,"stop_sequence":null},"usage":{"output_tokens":8}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":15}}

event: message_stop
data: {"type":"message_stop"}

"#;

/// `models/MODEL:generateContent`
const GEMINI: &str = r#"{
  "candidates": [
    {
      "content": { "parts": [{ "text": "Good morning." }], "role": "model" },
      "finishReason": "STOP",
      "index": 0
    }
  ],
  "usageMetadata": {
    "promptTokenCount": 8,
    "candidatesTokenCount": 31,
    "totalTokenCount": 1039,
    "promptTokensDetails": [{ "modality": "TEXT", "tokenCount": 8 }],
    "thoughtsTokenCount": 1000
  },
  "modelVersion": "gemini-2.5-flash",
  "responseId": "aBcD"
}
"#;

/// `models/MODEL:streamGenerateContent`
const GEMINI_ARRAY: &str = "[{\n  \"candidates\": [{\"content\": {\"parts\": [{\"text\": \"Good\"}], \"role\": \"model\"}}],\n  \
     \"usageMetadata\": {\"promptTokenCount\": 8, \"totalTokenCount\": 9},\n  \"modelVersion\": \"gemini-2.5-flash\"\n}\n,\r\n\
     {\n  \"candidates\": [{\"content\": {\"parts\": [{\"text\": \" morning.\"}], \"role\": \"model\"}, \"finishReason\": \"STOP\"}],\n  \
     \"usageMetadata\": {\"promptTokenCount\": 8, \"candidatesTokenCount\": 4, \"totalTokenCount\": 12},\n  \
     \"modelVersion\": \"gemini-2.5-flash\"\n}\n]\n";

/// `models/MODEL:streamGenerateContent?alt=sse`
const GEMINI_EVENTS: &str = "data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"Good\"}],\"role\": \"model\"}}],\
     \"usageMetadata\": {\"promptTokenCount\": 8,\"totalTokenCount\": 9},\"modelVersion\": \"gemini-2.5-flash\"}\r\n\r\n\
     data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \" morning.\"}],\"role\": \"model\"},\"finishReason\": \"STOP\"}],\
     \"usageMetadata\": {\"promptTokenCount\": 8,\"candidatesTokenCount\": 5,\"totalTokenCount\": 13},\
     \"modelVersion\": \"gemini-2.5-flash\"}\r\n\r\n";

/// Asserts what is found in `body`, whole, in any two pieces, and byte by byte, compressed or not.
#[track_caller]
fn assert_found(sum: JsonSum, content_type: &str, body: &str, expected: FoundNumber) {
    let sum = Arc::new(sum);
    for (coding, body) in [(None, body.as_bytes().to_vec()), (Some("gzip"), gzip(body.as_bytes()))] {
        for at in 0..=body.len() {
            let (first, second) = body.split_at(at);
            assert_eq!(
                scan(&sum, content_type, coding, [first, second]),
                expected,
                "{coding:?}, split at {at}"
            );
        }
        assert_eq!(scan(&sum, content_type, coding, body.chunks(1)), expected, "{coding:?}, byte by byte");
    }
}

#[test]
fn openai_tells_all_tokens() {
    let json = "application/json; charset=utf-8";
    assert_found(JsonSum::openai(), json, OPENAI_CHAT, FoundNumber::Number(64));
    assert_found(JsonSum::openai(), json, OPENAI_RESPONSE, FoundNumber::Number(123));
    let events = "text/event-stream; charset=utf-8";
    assert_found(JsonSum::openai(), events, OPENAI_STREAM, FoundNumber::Nothing);
    assert_found(JsonSum::openai(), events, OPENAI_STREAM_WITH_USAGE, FoundNumber::Number(21));
    assert_found(JsonSum::openai(), events, OPENAI_RESPONSE_STREAM, FoundNumber::Number(48));
}

#[test]
fn anthropic_tells_the_last_of_each_kind_of_tokens() {
    assert_found(JsonSum::anthropic(), JSON, ANTHROPIC_MESSAGE, FoundNumber::Number(2095 + 100 + 20 + 503));
    assert_found(JsonSum::anthropic(), EVENTS, ANTHROPIC_STREAM, FoundNumber::Number(25 + 7 + 15));
}

#[test]
fn gemini_tells_the_last_total() {
    assert_found(JsonSum::gemini(), "application/json; charset=UTF-8", GEMINI, FoundNumber::Number(1039));
    assert_found(JsonSum::gemini(), "application/json; charset=UTF-8", GEMINI_ARRAY, FoundNumber::Number(12));
    assert_found(JsonSum::gemini(), EVENTS, GEMINI_EVENTS, FoundNumber::Number(13));
}

#[test]
fn a_stream_tells_what_it_cost_so_far() {
    let sum = Arc::new(JsonSum::anthropic());
    let mut scanner = super::scanner(&sum, EVENTS, None).unwrap();
    let mut told = Vec::new();
    for event in ANTHROPIC_STREAM.split_inclusive("\n\n") {
        super::read_all(&mut scanner, event.as_bytes());
        told.push(scanner.found());
    }
    told.dedup();
    assert_eq!(told, [33, 40, 47].map(FoundNumber::Number));
}

#[test]
fn a_preset_finds_nothing_in_the_responses_of_another_provider() {
    assert_found(JsonSum::gemini(), JSON, OPENAI_CHAT, FoundNumber::Nothing);
    assert_found(JsonSum::anthropic(), JSON, GEMINI, FoundNumber::Nothing);
    assert_found(JsonSum::openai(), EVENTS, ANTHROPIC_STREAM, FoundNumber::Nothing);
}
