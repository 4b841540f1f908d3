-- The log of rights in strict limits; the comment on Rights describes it. Plain Lua
-- 5.1, nothing newer than Redis 6.2. A lane is one hash: what is lost of it is lost
-- with its head, and noticed.
--
-- KEYS: the lane.
-- ARGV: verb, token, the caller's clock (ms since 1970), then
--   take:   lanes, the ID of the log if it is to begin anew, and the token that the
--           caller had the lane with and the sequence number that was acknowledged to it
--           last; both empty: none that count; the regions that there are, with blanks between
--   load:   keys
--   commit: for each deposit: key, how long to keep it (ms), packed deposit; of one
--           without holdings it says the version, and removes it
--   disown: how long ago (ms) another region took this one's keys for others', and which do
--   look:   nothing; the token does not matter
--   revoke: whose rights are taken back (node, key; 8 bytes each), and how many may stand
--           there; the token is one that nobody has, as with trust, so that whoever takes
--           the lane next knows
--   restore: whose are given back, likewise
--   trust:  lanes, and the ID of the log if there is none; the token is one that
--           nobody has: whoever has the lane has to take it anew
-- Answer: to who may not: the reason, a string. Else a list that begins with the
-- sequence number and how many replicas there are, then
--   take:   ID, age by the server's clock, age by the callers', why it began anew, whose
--           rights are taken back (packed), and of each region that was ever named: name, 1 or
--           0 (it is named), how long ago that began by the server's clock, and by the
--           callers'; by the names ";v" and ";d" when it was trusted last, and disowned, with
--           by whom in place of the 1
--   load:   what is there of each key
--   disown: nothing more
--   look:   lanes (0: there is no log), age by the server's clock, age by the callers',
--           how many keys it has, whether it would begin anew for who knows nothing of
--           what was written last (1 or 0), whose rights are taken back (packed)
--   revoke, restore: nothing more
--   trust:  nothing more

local call, byte, sub = redis.call, string.byte, string.sub
local lane, verb, token, theirs = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])

local info = call('INFO', 'replication')
local id, run = string.match(info, 'master_replid:(%w+)'), string.match(call('INFO', 'server'), 'run_id:(%w+)')
if not id or not run then return redis.error_reply('ERR INFO has no master_replid, or no run_id') end
id = id .. run
if not string.find(info, 'role:master', 1, true) then
  return redis.error_reply('READONLY this is a replica: it may lack what its master has acknowledged')
end
local replicas = tonumber(string.match(info, 'connected_slaves:(%d+)') or 1)

local t = call('TIME')
local ours = t[1] * 1000 + math.floor(t[2] / 1000)

-- Regions notes in the lane which there are by now, and returns what is known of each. They stand
-- there as "NAME NAMED OURS THEIRS;", the times 0 of those of when the first were noted.
local function regions(list)
  local named, kept, out = {}, '', {}
  for name in string.gmatch(list, '%S+') do named[name] = 1 end
  local function keep(name, is, o, w)
    kept = kept .. string.format('%s %d %.0f %.0f;', name, is, o, w)
    out[#out + 1], out[#out + 2], out[#out + 3], out[#out + 4] = name, is, ours - o, theirs - w
  end
  local before = call('HGET', lane, 'r')
  for name, was, o, w in string.gmatch(before or '', '(%S+) ([01]) (%d+) (%d+);') do
    local is = named[name] or 0
    if is ~= tonumber(was) then o, w = ours, theirs end
    named[name] = nil
    -- 4000 days are longer than any window.
    if is == 1 or ours - o < 3456e8 then keep(name, is, tonumber(o), tonumber(w)) end
  end
  for name in string.gmatch(list, '%S+') do
    if named[name] then
      named[name] = nil
      keep(name, 1, before and ours or 0, before and theirs or 0)
    end
  end
  call('HSET', lane, 'r', kept)
  for _, field in ipairs({'v', 'd'}) do
    local o, w = string.match(call('HGET', lane, field) or '', '^(%d+) (%d+)$')
    if o then out[#out + 1], out[#out + 2], out[#out + 3], out[#out + 4] = ';' .. field, field == 'd' and (call('HGET', lane, 'e') or '') or 1, ours - o, theirs - w end
  end
  return out
end

if verb == 'take' then
  local lanes, origin, had, acked = ARGV[4], ARGV[5], ARGV[6], ARGV[7]
  local h = call('HMGET', lane, 't', 'i', 's', 'n', 'b', 'w', 'o')
  local fresh = ''
  if not h[1] or not (h[2] and h[3] and h[4] and h[5] and h[6] and h[7]) then
    fresh = 'there was no log'
  elseif h[4] ~= lanes then
    fresh = 'it was of ' .. h[4] .. ' lanes'
  elseif h[2] ~= id then
    -- Another process, or one that was a replica. Who had the lane knows the last of
    -- what was written; if that is there, so is all before.
    local promoted = string.find(info, 'master_replid2:%w*[1-9a-f]') ~= nil
    if had == '' then
      fresh = 'it is served by another process, and nobody knows what was written last'
    elseif h[1] ~= had or tonumber(h[3]) < tonumber(acked) then
      fresh = 'what was written last is not there'
    elseif promoted or replicas > 0 then
      fresh = 'a replica may have been promoted'
    end
  end
  if fresh ~= '' then
    if h[4] and h[4] ~= lanes then call('UNLINK', lane) end -- keys were in other lanes
    h[3], h[5], h[6], h[7] = 0, ours, theirs, origin
  end
  -- Numbers are written by %.0f: Lua itself writes large ones with an exponent.
  local seq = string.format('%.0f', tonumber(h[3]) + 1)
  local born, bornTheirs = tonumber(h[5]), tonumber(h[6])
  call('HSET', lane, 't', token, 'i', id, 's', seq, 'n', lanes, 'o', h[7],
    'b', string.format('%.0f', born), 'w', string.format('%.0f', bornTheirs))
  return {tonumber(seq), replicas, h[7], ours - born, theirs - bornTheirs, fresh, call('HGET', lane, 'x') or '', regions(ARGV[8] or '')}
end

if verb == 'look' then
  local h = call('HMGET', lane, 'n', 'b', 'w', 'i', 's')
  if not (h[1] and h[2] and h[3] and h[4] and h[5]) then return {0, replicas, 0, 0, 0, 0, 1, ''} end
  local keys = call('HLEN', lane) - 7
  for _, more in ipairs({'c', 'x', 'r', 'v', 'd', 'e'}) do keys = keys - call('HEXISTS', lane, more) end
  return {tonumber(h[5]), replicas, tonumber(h[1]), ours - h[2], theirs - h[3], keys, h[4] == id and 0 or 1, call('HGET', lane, 'x') or ''}
end

if verb == 'revoke' or verb == 'restore' then
  local who, most = ARGV[4], tonumber(ARGV[5])
  local h = call('HMGET', lane, 's', 'i', 'x')
  if not h[1] then return redis.error_reply('NOLOG there is no log of the lane yet: an aggregator takes it first') end
  if h[2] ~= id then return redis.error_reply('MOVED_LOG another process serves the log than wrote it: an aggregator takes the lane first') end
  local all = h[3] or ''
  local at = 1
  while at <= #all and sub(all, at, at + 15) ~= who do at = at + 16 end
  if verb == 'restore' then
    all = sub(all, 1, at - 1) .. sub(all, at + 16)
  elseif at > #all then
    if #all >= 16 * most then return redis.error_reply('FULL ' .. most .. ' stand there already') end
    all = all .. who
  end
  local seq = string.format('%.0f', tonumber(h[1]) + 1)
  call('HSET', lane, 't', token, 's', seq, 'x', all)
  return {tonumber(seq), replicas}
end

if verb == 'trust' then
  local lanes, origin = ARGV[4], ARGV[5]
  local h = call('HMGET', lane, 's', 'n', 'o')
  if h[2] and h[2] ~= lanes then
    return redis.error_reply('LANES the log is of ' .. h[2] .. ' lanes, not of ' .. lanes)
  end
  local seq = string.format('%.0f', tonumber(h[1] or 0) + 1)
  call('HSET', lane, 't', token, 'i', id, 's', seq, 'n', lanes, 'o', h[3] or origin, 'b', '0', 'w', '0',
    'v', string.format('%.0f %.0f', ours, theirs))
  return {tonumber(seq), replicas}
end

local h = call('HMGET', lane, 't', 'i')
if not h[1] then return 'the log is gone' end
if h[1] ~= token then return 'another has the lane' end
if h[2] ~= id then return 'another process serves the log, which may lack what was written last' end

if verb == 'load' then
  local out = {tonumber(call('HGET', lane, 's')), replicas}
  for a = 4, #ARGV do out[#out + 1] = call('HGET', lane, ARGV[a]) end
  return out
end

if verb == 'disown' then
  local ago = tonumber(ARGV[4])
  local o, w = string.match(call('HGET', lane, 'd') or '', '^(%d+) (%d+)$')
  local seq = call('HINCRBY', lane, 's', 1)
  call('HSET', lane, 'd', string.format('%.0f %.0f', math.max(tonumber(o or 0), ours - ago), math.max(tonumber(w or 0), theirs - ago)), 'e', ARGV[5])
  return {seq, replicas}
end

-- What numbers stand in n bytes of s from p on, big endian.
local function number(s, p, n)
  local x = 0
  for i = p, p + n - 1 do x = x * 256 + byte(s, i) end
  return x
end

-- Whether the version of deposit a, at byte p, is above that of b, at byte q. Lua
-- counts in doubles, so by halves.
local function above(a, p, b, q)
  local x, y = number(a, p, 4), number(b, q, 4)
  if x ~= y then return x > y end
  return number(a, p + 4, 4) > number(b, q + 4, 4)
end

local function bytes6(x)
  local b = {}
  for i = 6, 1, -1 do
    b[i] = x % 256
    x = math.floor(x / 256)
  end
  return string.char(b[1], b[2], b[3], b[4], b[5], b[6])
end

-- The sequence number is a write, and comes first: a master that may not write for
-- want of replicas does not acknowledge even what would be none.
local seq = call('HINCRBY', lane, 's', 1)
local written = 0
for a = 4, #ARGV, 3 do
  local key, keep, packed = ARGV[a], tonumber(ARGV[a + 1]), ARGV[a + 2]
  local held = call('HGET', lane, key)
  -- A version is at bytes 2 to 9 of what is packed, and six later of what is stored.
  if not held or #held < 15 or above(packed, 2, held, 8) then
    if #packed > 9 then
      call('HSET', lane, key, bytes6(math.max(ours, theirs) + keep) .. packed)
    elseif held then
      call('HDEL', lane, key)
    end
    written = written + 1
  end
end

-- Each deposit that is written pays for a look at two others, whether their time is up
-- by both clocks: so what nobody removed is gone after that time and half of it again.
if written > 0 then
  local scanned = call('HSCAN', lane, call('HGET', lane, 'c') or '0', 'COUNT', 2 * written + 8)
  for i = 1, #scanned[2], 2 do
    local key, value = scanned[2][i], scanned[2][i + 1]
    if #key == 8 and #value >= 6 and number(value, 1, 6) < math.min(ours, theirs) then
      call('HDEL', lane, key)
    end
  end
  call('HSET', lane, 'c', scanned[1])
end
return {seq, replicas}
