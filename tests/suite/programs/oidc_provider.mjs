// An OpenID provider: oidc-provider, whose signing key can be rotated. Prints its port.
import { generateKeyPairSync } from 'node:crypto';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [packages, port] = process.argv.slice(2);
const path = createRequire(packages + '/').resolve('oidc-provider');
const { default: Provider } = await import(pathToFileURL(path));

let provider;
let keys = [];
let fetches = 0;
// How long its tokens are valid, in seconds.
let lifetime = 3600;
// How long it takes to send its keys, in milliseconds.
let delay = 0;

// Signs with a new key from now on. The one before still verifies.
function rotate() {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const key = { ...privateKey.export({ format: 'jwk' }), kid: `key-${Date.now()}`, use: 'sig', alg: 'RS256' };
  keys = [key, ...keys.slice(0, 1)];
  provide();
}

// Begins anew with these settings.
function provide() {
  const resource = { scope: 'read', audience: 'api', accessTokenFormat: 'jwt', accessTokenTTL: lifetime };
  const client = {
    client_id: 'acme', client_secret: 'secret', grant_types: ['client_credentials'], redirect_uris: [],
    response_types: [],
  };
  provider = new Provider(`http://127.0.0.1:${server.address().port}`, {
    jwks: { keys },
    clients: [client],
    features: {
      devInteractions: { enabled: false },
      clientCredentials: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => 'https://api.example.com',
        getResourceServerInfo: () => resource,
      },
    },
  }).callback();
}

const server = createServer((request, response) => {
  if (request.url === '/rotate') {
    rotate();
    return response.end();
  }
  // `/lifetime/-3600`: its tokens have expired before they are issued, as at a client that kept them.
  const [, setting, value] = request.url.split('/');
  if (setting === 'lifetime' || setting === 'delay') {
    if (setting === 'lifetime') lifetime = Number(value); else delay = Number(value);
    provide();
    return response.end();
  }
  if (request.url === '/fetches') return response.end(`${fetches}`);
  if (request.url !== '/jwks') return provider(request, response);
  fetches++;
  setTimeout(() => provider(request, response), delay);
});
server.listen(Number(port), '127.0.0.1', () => {
  rotate();
  console.log(server.address().port);
});
