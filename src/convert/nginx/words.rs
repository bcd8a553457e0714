//! Directives without an equal: those that need none, and what to do about the others.

/// Directives that tune nginx itself, or that Tollgate does without being told. A name that ends in `*` is the beginning
/// of several.
const IRRELEVANT: &str = "\
    accept_mutex* access_log aio* allow_underscores charset* chunked_transfer_encoding client_body_buffer_size \
    client_body_in_file_only client_body_in_single_buffer client_body_temp_path client_header_buffer_size \
    connection_pool_size daemon debug_connection default_type directio* env error_log etag events fastcgi_* gzip* grpc_buffer_size grpc_socket_keepalive http2_* http3* \
    if_modified_since ignore_invalid_headers include index keepalive_disable keepalive_requests \
    large_client_header_buffers limit_conn_log_level limit_req_log_level lingering_* load_module lock_file \
    log_format log_not_found log_subrequest map_hash_* master_process max_ranges merge_slashes mime* msie_* \
    multi_accept open_file_cache* open_log_file_cache output_buffers pcre_jit pid port_in_redirect \
    postpone_output proxy_buffer* proxy_busy_buffers_size proxy_cache_* proxy_no_cache proxy_headers_hash_* proxy_http_version \
    proxy_max_temp_file_size proxy_request_buffering proxy_socket_keepalive proxy_temp_* \
    read_ahead recursive_error_pages request_pool_size reset_timedout_connection resolver resolver_timeout \
    scgi_* send_lowat sendfile* server_name_in_redirect server_names_hash_* server_tokens \
    ssl_buffer_size ssl_ciphers ssl_conf_command ssl_dhparam ssl_early_data ssl_ecdh_curve ssl_engine \
    ssl_prefer_server_ciphers ssl_session_* ssl_stapling* ssl_trusted_certificate subrequest_output_buffer_size \
    tcp_nodelay tcp_nopush thread_pool timer_resolution types types_hash_* underscores_in_headers \
    uninitialized_variable_warn use user uwsgi_* variables_hash_* vhost_traffic_status* \
    rewrite_log worker_* absolute_redirect proxy_ssl_server_name proxy_ssl_session_reuse proxy_ssl_protocols \
    proxy_ssl_ciphers proxy_ssl_verify_depth brotli* ssl http2 zone limit_rate_after \
    client_header_timeout client_body_timeout keepalive_timeout send_timeout keepalive_time";

/// What to do about a directive. A name that ends in `*` is the beginning of several.
const ADVICE: &[(&str, &str)] = &[
    ("limit_rate", "Tollgate does not limit bandwidth"),
    ("proxy_cache", "Tollgate does not cache: put a cache in front, or in the service"),
    ("proxy_store*", "Tollgate does not store responses"),
    ("sub_filter*", "Tollgate does not change bodies"),
    ("error_page", "Tollgate's own error pages cannot be changed; those of the service pass as they are"),
    ("proxy_intercept_errors", "error pages of the service pass as they are"),
    ("expires", "set Cache-Control by `response_headers` of the route"),
    ("proxy_redirect", "Tollgate does not rewrite `Location`: let the service send the right one"),
    ("proxy_cookie_*", "Tollgate does not change cookies: let the service set them"),
    ("proxy_pass_header", "Tollgate passes all headers"),
    ("proxy_pass_request_headers", "remove headers by `request_headers` of the route"),
    ("proxy_pass_request_body", "Tollgate passes the body"),
    ("proxy_ignore_headers", "Tollgate does not obey X-Accel headers"),
    (
        "proxy_ignore_client_abort",
        "a request that its client gave up is cancelled; limits count it for a while",
    ),
    ("proxy_method", "Tollgate passes the method"),
    ("proxy_bind", "Tollgate connects from the address that the system chooses"),
    ("mirror*", "Tollgate does not mirror requests"),
    ("stub_status", "the admin port has metrics: see docs/observability.md"),
    ("status_zone", "the admin port has metrics: see docs/observability.md"),
    ("stream", "Tollgate proxies HTTP only"),
    ("mail", "Tollgate proxies HTTP only"),
    ("split_clients", "write `upstreams` with weights and `split_by` in the route: see docs/routes.md"),
    ("perl*", "Tollgate runs no scripts"),
    ("js_*", "Tollgate runs no scripts"),
    ("lua_*", "Tollgate runs no scripts"),
    ("*_by_lua*", "Tollgate runs no scripts"),
    ("secure_link*", "Tollgate does not check signed links"),
    ("valid_referers", "Tollgate does not check Referer"),
    ("satisfy", "Tollgate has no `satisfy any`: addresses and credentials must both be allowed"),
    ("dav_*", "Tollgate serves no files"),
    ("autoindex*", "Tollgate serves no files"),
    ("ssi*", "Tollgate does not change bodies"),
    ("addition_types", "Tollgate does not change bodies"),
    ("image_filter*", "Tollgate does not change bodies"),
    ("geoip*", "Tollgate has no database of countries: list networks, or let a CDN in front set a header"),
    ("modsecurity*", "Tollgate has no web application firewall"),
    ("naxsi*", "Tollgate has no web application firewall"),
    ("ssl_crl", "Tollgate checks no revocation lists"),
    ("ssl_ocsp*", "Tollgate does not ask for the revocation of client certificates"),
    ("ssl_password_file", "Tollgate reads keys without a password"),
    ("proxy_limit_rate", "Tollgate does not limit bandwidth"),
    ("opentracing*", "see `tracing` in docs/observability.md"),
    ("otel*", "see `tracing` in docs/observability.md"),
];

/// Whether a directive may be left out: it changes nothing that clients or services would miss.
pub(super) fn is_irrelevant(name: &str) -> bool {
    IRRELEVANT.split_whitespace().any(|known| fits(known, name))
}

/// What to do about a directive that has no equal.
pub(super) fn advice(name: &str) -> &'static str {
    ADVICE
        .iter()
        .find(|(known, _)| fits(known, name))
        .map_or("Tollgate has no equal of this directive", |(_, advice)| advice)
}

fn fits(known: &str, name: &str) -> bool {
    match (known.strip_prefix('*'), known.strip_suffix('*')) {
        (Some(middle), _) => name.contains(middle.trim_end_matches('*')),
        (None, Some(begin)) => name.starts_with(begin),
        (None, None) => known == name,
    }
}
