-- Asks an edge about a request: http-request lua.spillgate ADDRESS, where HAProxy takes
-- the questions; see haproxy.cfg. An error in here would let requests pass.

-- Of the client's headers all are passed to the edge, for rules that read them, but
-- those of its connection, and those by which it could choose what is limited.
local dropped = {
  ["host"] = true, ["connection"] = true, ["proxy-connection"] = true, ["keep-alive"] = true,
  ["te"] = true, ["trailer"] = true, ["transfer-encoding"] = true, ["upgrade"] = true,
  ["expect"] = true, ["content-length"] = true,
  ["x-forwarded-for"] = true, ["x-forwarded-method"] = true, ["x-forwarded-uri"] = true,
  ["x-forwarded-host"] = true, ["x-original-method"] = true, ["x-original-uri"] = true,
}

-- Of the edge's headers these are not for the client.
local ours = {
  ["x-spillgate-answered"] = true, ["content-length"] = true, ["transfer-encoding"] = true,
  ["connection"] = true, ["date"] = true,
}

-- What clients are told of what was allowed, or of why nobody decided.
local told = { "ratelimit", "ratelimit-policy", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "x-spillgate-undecided" }

-- list is the values of a header as HAProxy's Lua gives them, from 0 on, from 1 on.
local function list(values)
  local out = {}
  for i = 0, #values do
    if values[i] ~= nil then out[#out + 1] = values[i] end
  end
  return out
end

-- The most fields of a client's that are passed to the edge, where a field that stands
-- twice counts twice. HAProxy has room for 101 in a question (tune.http.maxhdr), with its
-- own, and one of more would end it: the HTTP client of 2.6's Lua writes past the end.
local most = 80

-- question is what the edge is asked, or nil: the client has too many fields for one.
local function question(txn)
  local headers, fields = {}, 0
  for name, values in pairs(txn.http:req_get_headers()) do
    local all = list(values)
    fields = fields + #all
    if not dropped[name] then headers[name] = all end
  end
  if fields > most then return nil end
  -- The address as HAProxy sees it. Behind another proxy of yours let the line follow
  -- that it wrote, and name that proxy in the edge's trusted_proxies, too:
  -- { txn.sf:req_fhdr("x-forwarded-for") .. ", " .. txn.sf:src() }
  headers["x-forwarded-for"] = { txn.sf:src() }
  headers["x-forwarded-method"] = { txn.sf:method() }
  local path = txn.sf:pathq()
  headers["x-forwarded-uri"] = { path ~= "" and path or "/" } -- of "GET http://api" it is empty
  headers["x-forwarded-host"] = { txn.sf:req_fhdr("host") }
  return headers
end

core.register_action("spillgate", { "http-req" }, function(txn, ask)
  local asked = question(txn)
  if not asked then
    txn:done(txn:reply {
      status = 431, reason = "Request Header Fields Too Large", headers = { ["content-type"] = { "text/plain" } },
      body = "the request has more than " .. most .. " header fields\n",
    })
    return
  end
  local answer = core.httpclient():get {
    url = "http://" .. ask .. "/v1/auth?fail=open", headers = asked, timeout = 5000,
  }
  local status, headers = answer and answer.status or 500, answer and answer.headers or {}
  -- A dead edge limits nothing: HAProxy itself says that there is none. To deny instead,
  -- take this line away. What HAProxy says otherwise, as of headers too long for a
  -- question, is a client's doing, and nobody passes by that.
  local answered = headers["x-spillgate-answered"]
  if not answered and status >= 502 and status <= 504 then return end

  if answered and status >= 200 and status < 300 then
    for _, name in ipairs(told) do
      if headers[name] then txn:set_var("txn.spillgate_" .. name:gsub("-", "_"), list(headers[name])[1]) end
    end
    return
  end
  -- A client of gRPC takes any status but 200 for an outage: it is told in its own terms.
  local call = answered and headers["grpc-status"]
  local reply = call and txn:reply { status = 200, headers = { ["content-type"] = { txn.sf:req_hdr("content-type") } } } -- gRPC's, or gRPC-Web's
    or txn:reply { status = status, body = answer and answer.body }
  for name, values in pairs(headers) do
    if not ours[name] and not (call and name == "content-type") then
      for _, value in ipairs(list(values)) do reply:add_header(name, value) end
    end
  end
  txn:done(reply)
end, 1)
