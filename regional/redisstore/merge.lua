-- Joins vectors into groups and answers what the caller has not seen; the
-- package comment of redisstore describes both. Plain Lua 5.1: no struct, cjson
-- or bit library, nothing newer than Redis 6.2.
--
-- KEYS: the groups of the first key, and the list of its tag if it is to be
--       listed, then those of the second, ...
-- ARGV: nonce, the caller's clock (ms since 1970), then for each key its head, what to
--       list it as, if the head says that it is to be, what not to list it as any more and
--       until when it is listed at the least (ms), if the head says so, and for each of its
--       vectors: field, packed vector.
-- Head: the version that the caller saw (7 bytes), whether it is to be listed (1: 0 not,
--       1 so, 2 with the other two), then for each of its groups: number of vectors (3), when
--       it expires (6, ms).
--       It is one string, as each argument costs as much as reading all of it.
-- Answer: the time (ms, see below), then for each key its version now, or, if the version
-- before was not the one named, {version, group's index, its HGETALL, ...}.

local byte, sub, rep, floor = string.byte, string.sub, string.rep, math.floor
local call = redis.call
local MODULUS = 4503599627370496 -- 2^52

-- Widths of offset, charges and refunds, or nil if s is not a packed vector.
local function widths(s)
  local f, w = byte(s, 1, 2)
  if not w or f < 17 or f > 22 then return nil end
  local o, c, r = f - 16, floor(w / 16), w % 16
  if c < 1 or c > 8 or r > 8 then return nil end
  if #s == 2 or (#s - 2) % (o + c + r) ~= 0 then return nil end
  return o, c, r
end

-- The number in n bytes of s from p on; offsets have at most 6.
local function number(s, p, n)
  local x = 0
  for i = p, p + n - 1 do x = x * 256 + byte(s, i) end
  return x
end

-- The larger of two big-endian numbers of equal length.
local function larger(a, b)
  if a == b then return a end
  for i = 1, #a do
    local x, y = byte(a, i), byte(b, i)
    if x > y then return a end
    if x < y then return b end
  end
end

-- s, whose widths are o, c and r, in widths O, C and R, none of them less.
local function widen(s, o, c, r, O, C, R)
  if o == O and c == C and r == R then return s end
  local po, pc, pr = rep('\0', O - o), rep('\0', C - c), rep('\0', R - r)
  local out = {string.char(16 + O, C * 16 + R)}
  for p = 3, #s, o + c + r do
    out[#out + 1] = po .. sub(s, p, p + o - 1)
      .. pc .. sub(s, p + o, p + o + c - 1)
      .. pr .. sub(s, p + o + c, p + o + c + r - 1)
  end
  return table.concat(out)
end

-- The join of a and b, which have these widths, where it is quickly told: b has
-- the last slices of a, or later ones, and no count less than a's. False where it
-- is not, nil where it is a.
local function raise(a, b, o, c, r)
  local stride, na, nb = o + c + r, #a - 2, #b - 2
  if c > 6 or r > 6 or nb > 256 then return false end -- more than doubles, or the stack, hold
  -- Bytes from b's first slice on, if a leaves none out.
  local back = (number(a, #a - stride + 1, o) - number(b, 3, o) + 1) * stride
  if back <= 0 then return a .. sub(b, 3) end
  if back > na then return false end
  local both, rose, from = math.min(back, nb), back < nb, na + 3 - back
  local A, B = {byte(a, from, from + both - 1)}, {byte(b, 3, both + 2)}
  for p = 1, both, stride do
    local q = p + o
    for i = p, q - 1 do
      if A[i] ~= B[i] then return false end
    end
    local x, y = A[q], B[q]
    for i = q + 1, q + c - 1 do x, y = x * 256 + A[i], y * 256 + B[i] end
    if x > y then return false end
    if x < y then rose = true end
    if r > 0 then
      x, y = 0, 0
      for i = q + c, q + c + r - 1 do x, y = x * 256 + A[i], y * 256 + B[i] end
      if x > y then return false end
      if x < y then rose = true end
    end
  end
  if not rose then return nil end
  return sub(a, 1, from - 1) .. sub(b, 3) .. sub(a, from + both)
end

-- The join of a, as stored, and b; nil if it is a.
local function join(a, b)
  local ao, ac, ar = widths(a)
  if not ao then return b end -- not ours: nobody's count is lost with it
  local bo, bc, br = widths(b)
  local o, c, r = math.max(ao, bo), math.max(ac, bc), math.max(ar, br)
  a, b = widen(a, ao, ac, ar, o, c, r), widen(b, bo, bc, br, o, c, r)
  local raised = raise(a, b, o, c, r)
  if raised ~= false then return raised end
  local stride = o + c + r
  local n = (#a - 2) / stride
  local out, from, low = {sub(a, 1, 2)}, 3, 0 -- from: first byte not copied yet
  for p = 3, #b, stride do
    local want, high = number(b, p, o), n
    if low < n and number(a, 3 + (n - 1) * stride, o) < want then low = n end -- most are newer
    while low < high do
      local mid = floor((low + high) / 2)
      if number(a, 3 + mid * stride, o) < want then low = mid + 1 else high = mid end
    end
    local q = 3 + low * stride
    if low < n and number(a, q, o) == want then
      local old = sub(a, q + o, q + stride - 1)
      local new = larger(sub(old, 1, c), sub(b, p + o, p + o + c - 1))
        .. larger(sub(old, c + 1), sub(b, p + o + c, p + stride - 1))
      if new ~= old then
        out[#out + 1] = sub(a, from, q + o - 1)
        out[#out + 1] = new
        from = q + stride
      end
    else
      out[#out + 1] = sub(a, from, q - 1)
      out[#out + 1] = sub(b, p, p + stride - 1)
      from = q
    end
  end
  if #out == 1 then return nil end
  out[#out + 1] = sub(a, from)
  return table.concat(out)
end

local function version(s)
  local v = s and tonumber(s)
  if v and v >= 1 and v <= MODULUS and v % 1 == 0 then return v end
  return 0
end

local function plus(a, b)
  local s = a + b
  if s > MODULUS then return s - MODULUS end
  return s
end

-- The keys that a tag's list may have.
local MOST = 1024

-- Lists a member for as long as its counts last. A list is a help: what ails it
-- is no reason to refuse counts.
local function list(key, member, former, expires, now, ahead)
  if former ~= '' then redis.pcall('ZREM', key, former) end
  local added = redis.pcall('ZADD', key, 'GT', 'CH', expires, member)
  if type(added) ~= 'number' or added == 0 then return end -- it stands there
  call('ZREMRANGEBYSCORE', key, '-inf', now)
  call('ZREMRANGEBYRANK', key, 0, -MOST - 1)
  if call('PTTL', key) < expires - now then call('PEXPIREAT', key, expires + ahead) end
end

-- The server's clock decides what is over, and one that is ahead of the caller's
-- would drop what the caller has yet to enforce: it is set back by whole seconds, and
-- what is written expires as much later by it. By whole ones, as all that is written
-- of the same slices is to expire in the same moment: under volatile-ttl the server
-- evicts what goes soonest, be that of a moment. One that is behind keeps all for longer.
local time = call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)
local ahead = math.max(0, floor((now - tonumber(ARGV[2])) / 1000) * 1000)
now = now - ahead
local nonce = tonumber(ARGV[1])
local out, k, a = {now}, 1, 3
while k <= #KEYS do
  local head, member, former, least = ARGV[a], nil, '', 0
  local v1, v2, v3, v4, v5, v6, v7, listed = byte(head, 1, 8)
  local named = (((((v1 * 256 + v2) * 256 + v3) * 256 + v4) * 256 + v5) * 256 + v6) * 256 + v7
  a = a + 1
  if listed > 0 then
    member, a = ARGV[a], a + 1
  end
  if listed == 2 then
    former, least, a = ARGV[a], tonumber(ARGV[a + 1]), a + 2
  end
  local first, before, after, last = k, 0, 0, 0
  for p = 9, #head, 9 do
    local key, expires = KEYS[k], 0
    local n1, n2, n3, e1, e2, e3, e4, e5, e6 = byte(head, p, p + 8)
    local vectors = (n1 * 256 + n2) * 256 + n3
    if vectors > 0 or member then
      expires = ((((e1 * 256 + e2) * 256 + e3) * 256 + e4) * 256 + e5) * 256 + e6
    end
    k = k + 1
    local old, changed, field, value
    if expires > now and vectors > 0 then
      local read = call('HMGET', key, 'v', ARGV[a])
      old = version(read[1])
      for i = a, a + 2 * vectors - 2, 2 do
        if field then -- now, for the same one may stand in the batch again
          call('HSET', key, field, value)
          field = nil
        end
        local held, joined = read[2], ARGV[i + 1]
        if i > a then held = call('HGET', key, ARGV[i]) end
        if held then joined = join(held, joined) end
        if joined then
          changed, field, value = true, ARGV[i], joined
        end
      end
    else
      old = version(call('HGET', key, 'v'))
    end
    local new = old
    if changed then
      if old == 0 then new = nonce else new = plus(old, 1) end
      -- Much sooner written than with %.0f. A server of 32 bits writes versions that
      -- it then reads as none: it is told all each time, which is slow, and right.
      local v = string.format('%d', new)
      if field then call('HSET', key, 'v', v, field, value) else call('HSET', key, 'v', v) end
      -- A group expires when it does, but the last, of what outlasts the slices,
      -- later with each change; and all do where clocks differ, as who wrote it first
      -- may have set the server's back by less.
      if old == 0 or (ahead > 0 or p + 9 > #head) and call('PTTL', key) < expires - now then
        call('PEXPIREAT', key, expires + ahead)
      end
    end
    a = a + 2 * vectors
    before, after = plus(before, old), plus(after, new)
    if new > 0 then last = math.max(last, expires) end
  end
  local behind = k
  if member then
    last = math.max(last, least)
    if last > now then list(KEYS[k], member, former, last, now, ahead) end
    k = k + 1
  end
  if before == named then
    out[#out + 1] = after
  else
    local answer = {after}
    for g = first, behind - 1 do
      local fields = call('HGETALL', KEYS[g])
      if #fields > 0 then
        answer[#answer + 1] = g - first
        answer[#answer + 1] = fields
      end
    end
    out[#out + 1] = answer
  end
end
return out
