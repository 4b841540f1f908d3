// Has clients that retry ask for a URL each, several times in a row, as their own
// documentation has them set up, and prints what each got, a line of JSON for a client.
//
//   node clients.mjs TIMES NAME=URL...
import { Octokit } from "@octokit/core";
import { throttling } from "@octokit/plugin-throttling";
import axios from "axios";
import axiosRetry from "axios-retry";
import got from "got";
import ky from "ky";
import { Agent, RetryAgent, request } from "undici";

const tries = 5;

const axiosClient = axios.create();
axiosRetry(axiosClient, { retries: tries });

const undiciAgent = new RetryAgent(new Agent(), { maxRetries: tries });

const again = (after, options, octokit, count) => count < tries;
const ThrottledOctokit = Octokit.plugin(throttling);

const clients = {
  "axios-retry": async (url) => (await axiosClient.get(url)).status,
  got: async (url) => (await got(url, { retry: { limit: tries } })).statusCode,
  ky: async (url) => (await ky(url, { retry: { limit: tries } })).status,
  undici: async (url) => {
    const got = await request(url, { dispatcher: undiciAgent });
    await got.body.dump();
    return got.statusCode;
  },
  octokit: async (url) => {
    const { origin, pathname } = new URL(url);
    const octokit = new ThrottledOctokit({
      baseUrl: origin,
      throttle: { onRateLimit: again, onSecondaryRateLimit: again },
      log: { debug() {}, info() {}, warn() {}, error() {} },
    });
    return (await octokit.request("GET " + pathname)).status;
  },
};

async function ask(name, url, times) {
  const out = { client: name, url, statuses: [], error: "" };
  for (let i = 0; i < times; i++) {
    try {
      out.statuses.push(await clients[name](url));
    } catch (e) {
      out.error = String(e);
      break;
    }
  }
  console.log(JSON.stringify(out));
}

const [times, ...asked] = process.argv.slice(2);
await Promise.all(
  asked.map((a) => {
    const at = a.indexOf("=");
    return ask(a.slice(0, at), a.slice(at + 1), Number(times));
  }),
);
process.exit(0); // timers of Octokit's would keep it
