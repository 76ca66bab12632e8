// An identity provider for tests: oidc-provider, certified by the OpenID Foundation, with its own pages for development.
// node oidc_provider.mjs PACKAGES REDIRECT_URI; prints its issuer and serves until its standard input ends.
import { createRequire } from "node:module";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const [packages, redirectUri] = process.argv.slice(2);
const require = createRequire(`${packages}/`);
const { Provider } = await import(pathToFileURL(require.resolve("oidc-provider")));
const server = createServer();
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const issuer = `http://127.0.0.1:${server.address().port}`;
const clients = [
  { client_id: "console", client_secret: "a secret of the client+%", redirect_uris: [redirectUri] },
  { client_id: "public", token_endpoint_auth_method: "none", redirect_uris: [redirectUri] },
];
const provider = new Provider(issuer, {
  clients,
  pkce: { required: () => true },
  conformIdTokenClaims: false,
  claims: { openid: ["sub", "preferred_username"] },
  findAccount: (context, id) => ({ accountId: id, claims: () => ({ sub: id, preferred_username: `${id}@example` }) }),
});
server.on("request", provider.callback());
console.log(issuer);
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
