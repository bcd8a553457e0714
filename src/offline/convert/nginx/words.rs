//! The classes of directives: what this reader converts, what needs nothing, what is noted. All others close their scope.

use super::{rule, syntax::Directive};
use crate::offline::convert::{
    condition::RequestCondition,
    site::{Effect, SiteRule},
};

/// What becomes of a directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DirectiveTreatment {
    /// The reader looks at it.
    Converted,
    /// Nobody outside can see that it is missing.
    Nothing,
    /// It can be seen, and nobody relies on it for safety.
    Noted(&'static str),
    /// It protects something, or changes what clients or services get.
    Closes(&'static str),
}

use DirectiveTreatment::{Closes, Converted, Noted, Nothing};

/// The classes of words. The first that fits counts; what fits none closes. A `*` at an end stands for any text.
const TABLE: &[(DirectiveTreatment, &str)] = &[
    (
        Converted,
        "http server location upstream map geo listen server_name limit_req_zone limit_conn_zone limit_req limit_conn \
         limit_req_status limit_conn_status limit_req_dry_run limit_conn_dry_run allow deny satisfy limit_except internal \
         return rewrite if set break proxy_pass grpc_pass fastcgi_pass uwsgi_pass scgi_pass memcached_pass root alias index \
         try_files add_header expires proxy_set_header grpc_set_header proxy_hide_header grpc_hide_header default_type \
         client_max_body_size proxy_read_timeout proxy_connect_timeout grpc_read_timeout grpc_connect_timeout \
         proxy_next_upstream proxy_next_upstream_tries proxy_ssl_trusted_certificate proxy_ssl_certificate \
         proxy_ssl_certificate_key proxy_ssl_name proxy_ssl_verify set_real_ip_from real_ip_header real_ip_recursive ssl \
         ssl_certificate ssl_certificate_key ssl_protocols ssl_client_certificate ssl_verify_client \
         ssl_trusted_certificate ssl_reject_handshake ssl_crl ssl_ocsp auth_basic",
    ),
    // nginx' own processes, memory, files and modules.
    (
        Nothing,
        "accept_mutex* daemon debug_connection debug_points env events load_module lock_file master_process multi_accept \
         pcre_jit pid ssl_engine thread_pool timer_resolution use user worker_* working_directory connection_pool_size \
         request_pool_size variables_hash_* map_hash_* server_names_hash_* types_hash_* proxy_headers_hash_* \
         uninitialized_variable_warn lua_package_path lua_package_cpath lua_shared_dict lua_code_cache js_import js_path \
         perl_modules",
    ),
    // How it reads, writes and encrypts the same bytes.
    (
        Nothing,
        "aio* directio* sendfile* send_lowat tcp_nodelay tcp_nopush output_buffers postpone_output read_ahead \
         reset_timedout_connection lingering_* client_body_buffer_size client_body_in_file_only \
         client_body_in_single_buffer client_body_temp_path client_header_buffer_size chunked_transfer_encoding \
         keepalive_disable keepalive_requests keepalive_min_timeout keepalive_time msie_* subrequest_output_buffer_size \
         proxy_buffer* proxy_busy_buffers_size proxy_max_temp_file_size proxy_temp_* proxy_request_buffering \
         proxy_socket_keepalive proxy_http_version proxy_send_timeout proxy_send_lowat proxy_force_ranges \
         grpc_buffer_size grpc_socket_keepalive grpc_send_timeout http2 http2_* http3* quic_* ssl_buffer_size ssl_ciphers \
         ssl_conf_command ssl_dhparam ssl_early_data ssl_ecdh_curve ssl_prefer_server_ciphers ssl_session_* \
         ssl_stapling* ssl_verify_depth proxy_ssl_server_name proxy_ssl_session_reuse proxy_ssl_protocols \
         proxy_ssl_ciphers proxy_ssl_verify_depth resolver resolver_timeout",
    ),
    // Logs and measurements: Tollgate has its own.
    (
        Nothing,
        "access_log error_log log_format log_not_found log_subrequest open_log_file_cache rewrite_log \
         limit_req_log_level limit_conn_log_level log_by_lua* status_zone vhost_traffic_status*",
    ),
    // Static files and CGI: their locations are closed anyway.
    (
        Nothing,
        "autoindex* etag if_modified_since max_ranges open_file_cache* mime* types fastcgi_* uwsgi_* scgi_* memcached_* \
         gzip_* brotli_* zstd_* disable_symlinks random_index",
    ),
    // Tollgate does so without being told, or does not do what this could change.
    (
        Nothing,
        "absolute_redirect port_in_redirect server_tokens merge_slashes underscores_in_headers ignore_invalid_headers \
         proxy_pass_header proxy_ignore_headers recursive_error_pages limit_rate_after proxy_cache_* proxy_no_cache \
         proxy_store_access mirror_request_body",
    ),
    // Parts of a check that closes the route itself, or a variable that Tollgate does not know.
    (
        Nothing,
        "auth_basic_user_file auth_request_set auth_delay auth_jwt_key_file auth_jwt_type valid_referers \
         referer_hash_* split_clients geoip_* geoip2 geoip2_* perl_set js_set js_var set_by_lua*",
    ),
    (Noted("Tollgate does not limit bandwidth"), "limit_rate proxy_limit_rate"),
    (Noted("Tollgate does not compress: let the service do it"), "gzip brotli zstd"),
    (Noted("Tollgate does not add a charset: let the service name it"), "charset*"),
    (
        Noted("error pages of Tollgate cannot be changed, and those of the service pass as they are"),
        "error_page",
    ),
    (Noted("error pages of the service pass as they are"), "proxy_intercept_errors"),
    (Noted("Tollgate does not cache: put a cache in front, or in the service"), "proxy_cache proxy_store"),
    (Noted("Tollgate does not rewrite `Location`: let the service send the right one"), "proxy_redirect"),
    (Noted("Tollgate does not mirror requests"), "mirror"),
    (Noted("Tollgate connects from the address that the system chooses"), "proxy_bind"),
    (Noted("a request that its client gave up is cancelled"), "proxy_ignore_client_abort"),
    (Noted("set `timeouts.total` of the upstream"), "proxy_next_upstream_timeout"),
    (
        Noted("`client_limits` holds for all servers"),
        "large_client_header_buffers client_header_timeout keepalive_timeout",
    ),
    (Noted("set `client_limits.min_rate`, which ends slow clients"), "client_body_timeout send_timeout"),
    (Noted("Tollgate reads keys without a password"), "ssl_password_file"),
    (Noted("write `tls` of the upstream"), "grpc_ssl_*"),
    (Noted("write `health` of the upstream"), "health_check*"),
    (Noted("see `tracing` in docs/observability.md"), "opentracing* otel*"),
    (Noted("Tollgate runs no scripts"), "init_by_lua* init_worker_by_lua* lua_*"),
    (Noted("Tollgate proxies HTTP only"), "stream mail"),
    (Closes("write `user: [{ jwt: … }]` and `require: user`"), "auth_jwt*"),
    (Closes(NO_PASSWORDS), "auth_*"),
    (Closes("the file cannot be read here, and may protect something: convert where it is"), "include"),
    (Closes("Tollgate does not change cookies: let the service set them"), "proxy_cookie_*"),
    (Closes(NO_BODIES), "sub_filter* add_before_body add_after_body ssi* image_filter*"),
    (Closes("Tollgate runs no scripts"), "*_by_lua_block *_by_lua_file *_by_lua js_* perl*"),
    (Closes("Tollgate does not check signed links"), "secure_link*"),
    (Closes("Tollgate has no web application firewall"), "modsecurity*"),
    (Closes("the admin port has metrics: see docs/observability.md"), "stub_status"),
    (Closes("write `request_headers` or `response_headers` of the route"), "more_*"),
    (Closes(UNKNOWN), "*"),
];
const NO_BODIES: &str = "Tollgate does not change bodies";
const UNKNOWN: &str = "Tollgate has no equal of this directive";
pub(super) const NO_PASSWORDS: &str = "Tollgate checks no passwords and asks no other service: let the service do it, or use \
                                       `api_keys` or tokens";

/// What does nothing if it is `off`. Other words may do something then.
const OFF: &str = "auth_* modsecurity* proxy_cache gzip brotli zstd charset proxy_intercept_errors mirror proxy_store \
                   proxy_redirect ssi proxy_cookie_* proxy_ignore_client_abort proxy_bind stub_status perl expires \
                   opentracing* otel* ssl_ocsp";
/// Included files that have tables, which come with nginx.
const TABLES: &str = "*mime.types *_params *fastcgi.conf *koi-win *koi-utf";

/// The class of a directive.
pub(super) fn class(directive: &Directive) -> DirectiveTreatment {
    let (name, value) = (directive.name.as_str(), directive.argument(0));
    let is_table = name == "include" && (is_in(TABLES, value) || value.contains("modules-enabled"));
    match (name, value) {
        ("proxy_redirect", "default") | ("limit_rate" | "proxy_limit_rate", "0") => Nothing,
        (_, "off") if is_in(OFF, name) => Nothing,
        _ if is_table => Nothing,
        _ => TABLE.iter().find(|(_, words)| is_in(words, name)).map_or(Converted, |(class, _)| *class),
    }
}

/// Whether a directive may change the body of a `return`, which comes before all checks.
pub(super) fn may_change_bodies(directive: &Directive) -> bool {
    matches!(class(directive), Closes(NO_BODIES | UNKNOWN))
}

/// The rule for a directive that has no equal.
pub(super) fn said(directive: &Directive, when: &RequestCondition) -> Option<SiteRule> {
    match class(directive) {
        Closes(text) => Some(rule(directive, when.clone(), Effect::Close(text.to_owned()))),
        Noted(text) => Some(rule(directive, when.clone(), Effect::Note(text.to_owned()))),
        Nothing | Converted => None,
    }
}

fn is_in(words: &str, name: &str) -> bool {
    words.split_whitespace().any(|known| match (known.strip_prefix('*'), known.strip_suffix('*')) {
        (Some(end), _) => name.ends_with(end),
        (None, Some(begin)) => name.starts_with(begin),
        (None, None) => known == name,
    })
}
