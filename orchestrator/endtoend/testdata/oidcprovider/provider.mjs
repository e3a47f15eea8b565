// A certified OpenID provider for tests: device flow, code flow with PKCE, groups, refresh, revocation.
// Use: PORT=9310 node provider.mjs, in a folder with the modules of package.json. Each start has new signing keys.
// It listens on loopback without TLS, or on HOST with the files CERT and KEY.
import { generateKeyPairSync, randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:https'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const found = createRequire(process.cwd() + '/').resolve('oidc-provider')
const { Provider } = await import(pathToFileURL(found))
const port = Number(process.env.PORT)
const { HOST: host = '127.0.0.1', CERT: cert, KEY: certKey } = process.env
const people = { ann: ['vision'], eve: [] }
const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
const key = { ...privateKey.export({ format: 'jwk' }), kid: randomBytes(8).toString('hex'), use: 'sig', alg: 'RS256' }
const provider = new Provider(`${cert ? 'https' : 'http'}://${host}:${port}`, {
  jwks: { keys: [key] },
  cookies: { keys: ['test'] },
  clients: [{
    client_id: 'outbid-cli', application_type: 'native', token_endpoint_auth_method: 'none',
    grant_types: ['urn:ietf:params:oauth:grant-type:device_code', 'authorization_code', 'refresh_token'],
    response_types: ['code'], redirect_uris: ['http://127.0.0.1/callback', 'http://127.0.0.1/ui/session/done'],
  }],
  scopes: ['openid', 'offline_access', 'profile', 'email', 'groups'],
  claims: { openid: ['sub'], profile: ['preferred_username'], email: ['email', 'email_verified'], groups: ['groups'] },
  conformIdTokenClaims: false,
  features: { deviceFlow: { enabled: true }, devInteractions: { enabled: true }, revocation: { enabled: true } },
  pkce: { required: () => true },
  ttl: { IdToken: 300, AccessToken: 300, DeviceCode: 60, RefreshToken: 3600 },
  findAccount: (_ctx, id) => people[id] && ({
    accountId: id,
    claims: () => ({ sub: `id-${id}`, preferred_username: id, email: `${id}@example.org`, email_verified: true, groups: people[id] }),
  }),
})
const up = () => console.log('issuer', provider.issuer)
if (cert) createServer({ cert: readFileSync(cert), key: readFileSync(certKey) }, provider.callback()).listen(port, host, up)
else provider.listen(port, host, up)
